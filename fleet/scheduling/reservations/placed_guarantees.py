"""Guarantees whose reservations have nodes of their own: nobody has to move for another's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fleet.scheduling.reservations.guarantees import Guarantees
from fleet.scheduling.reservations.places import Nodes, Placed, Places
from fleet.scheduling.reservations.reservation import Demand, Reservation, reserved_at, trained


class PlacedGuarantees:
    """Reservations of one kind of device that fit on the nodes, each long enough for its job.

    Args:
        demands: the demands of the jobs whose deadlines were promised.
        known: job -> its reservation so far and where that lies, to be kept where it still holds. Without nodes it is
            placed anew.
        running: job -> the nodes on which it is.
        now: seconds since the run began.
        sizes: node -> its devices that work.
        whole: devices of a whole node.
        pinned: whether to move costs anything; else it is enough that reservations fit by number.
    """

    def __init__(
        self,
        demands: Iterable[Demand],
        known: Mapping[str, Placed],
        running: Mapping[str, Nodes],
        now: float,
        sizes: Mapping[int, int],
        whole: int,
        pinned: bool,
    ) -> None:
        self._now, self._sizes, self._whole, self._pinned = now, sizes, whole, pinned
        self._running, self._demands = running, {demand.name: demand for demand in demands}
        lying = {name: placed for name, placed in known.items() if pinned and placed.nodes}
        self._places = Places(sizes, whole, now, lying)
        if self._places.least < 0:
            self._places = Places(sizes, whole, now)
            for name, placed in lying.items():
                if self._places.fits(placed):
                    self._places.put(name, placed)
        promised = {name: placed.reservation for name, placed in known.items()}
        self._guarantees = Guarantees(self._demands.values(), promised, now, sum(sizes.values()), False)
        if not self._placed(self._guarantees):
            self._keep_what_lies()

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """Job -> its reservation."""
        return self._guarantees.reservations

    @property
    def places(self) -> Mapping[str, Placed]:
        """Job -> its reservation, and where that lies; empty if nobody is pinned."""
        return self._places.of

    def admit(self, demand: Demand) -> bool:
        """As `Guarantees.admit`; where what is found by number has no place, all are reserved anew."""
        self._demands[demand.name] = demand
        for anew in (False, True):
            trial = self._guarantees.copy()
            if not trial.admit(demand, anew):
                break
            if self._placed(trial):
                return True
        del self._demands[demand.name]
        return False

    def hold(self, name: str, count: int, nodes: Nodes) -> bool:
        """As `Guarantees.hold`, on these nodes."""
        before = self._guarantees.reservations[name]
        if not self._guarantees.hold(name, count):
            return False
        if self._pinned:
            lifted, held = self._places.lift(name), self._guarantees.reservations[name]
            fitting = self._places.fits(Placed(held, (nodes,)))
            self._places.put(name, Placed(held, (nodes,)) if fitting else lifted)
            if not fitting:
                self._guarantees.reservations[name] = before
                return False
        return True

    def earliest_end(self, demand: Demand) -> float:
        """As `Guarantees.earliest_end`."""
        return self._guarantees.earliest_end(demand)

    def homes(self, name: str, count: int) -> Iterator[Nodes]:
        """Where a job can have so many devices from now on without moving for its reservation: where that lies first.

        Empty where that, now or next, is of another number.
        """
        placed = self._places.of[name]
        number = self._next_piece(placed.reservation)
        if number is None or placed.reservation[number][2] != count:
            return
        end = placed.reservation[number][1]
        self._places.lift(name)
        room = list(self._places.room(self._now, end, count))
        own = placed.nodes[number]
        if self._places.has_room(self._now, end, count, own):
            room = [own, *(nodes for nodes in room if nodes != own)]
        self._places.put(name, placed)
        yield from room

    def settle(self, name: str, nodes: Nodes) -> float:
        """Let what is reserved now or next lie on these of the job's `homes`; until when it need not move for it."""
        reservation, known = self._places.lift(name)
        number = self._next_piece(reservation)
        assert number is not None, "it has a home"
        placed = Placed(reservation, (*known[:number], nodes, *known[number + 1 :]))
        self._places.put(name, placed)
        return reservation[number][1]

    def _next_piece(self, reservation: Reservation) -> int | None:
        """The number of the piece of now or, between two, of the next; None: all are over."""
        return next((number for number, (_, end, _) in enumerate(reservation) if end > self._now), None)

    def _placed(self, guarantees: Guarantees) -> bool:
        """Whether all of these have a place; if so they are kept."""
        if not self._pinned:
            self._guarantees = guarantees
            return True
        reservations = guarantees.reservations
        at_home = {name: self._running[name] for name in reservations if self._goes_on(name, reservations[name])}
        kept = {name: self._places.of[name] for name in reservations if self._lies(name, reservations[name])}
        whole = len(kept) == len(self._places.of)
        for known in (kept, {}):
            places = self._places.copy() if known and whole else self._alone(known)
            rest = {name: reservation for name, reservation in reservations.items() if name not in known}
            if places.place(rest, at_home):
                self._guarantees, self._places = guarantees, places
                return True
        return False

    def _alone(self, known: Mapping[str, Placed]) -> Places:
        """Places for these alone."""
        return Places(self._sizes, self._whole, self._now, known)

    def _lies(self, name: str, reservation: Reservation) -> bool:
        placed = self._places.of.get(name)
        return placed is not None and placed.reservation == reservation

    def _goes_on(self, name: str, reservation: Reservation) -> bool:
        """Whether the reservation counts on the job's staying where it is."""
        held = self._demands[name].held
        return held > 0 and reserved_at(reservation, self._now) == held

    def _keep_what_lies(self) -> None:
        """Devices were lost: the promises alone that hold as they were."""
        holding = {
            name: placed
            for name, placed in self._places.of.items()
            if trained(placed.reservation, self._demands[name], self._now) >= self._demands[name].samples
        }
        self._places = self._alone(holding)
        promised = {name: placed.reservation for name, placed in holding.items()}
        demands = [self._demands[name] for name in holding]
        self._guarantees = Guarantees(demands, promised, self._now, sum(self._sizes.values()), False)
