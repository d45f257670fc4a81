"""Nodes for reservations: each piece lies where as many devices are left for all of its time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from types import MappingProxyType
from typing import NamedTuple

from fleet.scheduling.reservations.guarantees import Guarantees
from fleet.scheduling.reservations.reservation import Demand, FreeProfile, Reservation, reserved_at, trained

Nodes = tuple[int, ...]
"""Those on which the devices of a job lie: one, or several whole ones; ascending."""


class Placed(NamedTuple):
    """A reservation, and the nodes of each of its pieces."""

    reservation: Reservation
    nodes: tuple[Nodes, ...]


_NONE: Mapping[str, Placed] = MappingProxyType({})


class Places:
    """Where the pieces of reservations lie, so that a job moves where its own reservation changes, and for nobody else.

    That enough devices of a kind are free all the time does not tell that they are so on one node: who is on a node
    may have to leave it. So each piece is given its nodes before it is promised.

    Args:
        sizes: node -> its devices that can be given.
        whole: devices of a whole node.
        now: where time begins, seconds since the run began.
        known: job -> its reservation and where that lies.

    Attributes:
        of: job -> its reservation and where that lies.
    """

    def __init__(self, sizes: Mapping[int, int], whole: int, now: float, known: Mapping[str, Placed] = _NONE) -> None:
        self._whole, self._now, self.of = whole, now, dict(known)
        pieces: dict[int, list[Reservation]] = {node: [] for node in sizes}
        for placed in known.values():
            for (begin, end, count), nodes in zip(*placed):
                for node in nodes:
                    pieces.setdefault(node, []).append(((begin, end, count // len(nodes)),))
        self._profiles = {node: FreeProfile.beside(now, sizes.get(node, 0), each) for node, each in pieces.items()}

    @property
    def least(self) -> int:
        """The fewest devices that are left on any node at any time; below 0 where too many were known to lie there."""
        return min(profile.least for profile in self._profiles.values())

    def copy(self) -> Places:
        """The same, so that what is placed leaves no trace here."""
        other = copy(self)
        other.of, other._profiles = self.of.copy(), {node: copy(each) for node, each in self._profiles.items()}
        return other

    def put(self, name: str, placed: Placed) -> None:
        """Take these nodes, which have room, for the pieces that are not over."""
        self.of[name] = placed
        for (begin, end, count), nodes in zip(*placed):
            self._change(begin, end, count, nodes)

    def lift(self, name: str) -> Placed:
        """Give back what a job's reservation has taken."""
        placed = self.of.pop(name)
        for (begin, end, count), nodes in zip(*placed):
            self._change(begin, end, -count, nodes)
        return placed

    def fits(self, placed: Placed) -> bool:
        """Whether all of it has room there; pieces of one reservation are never at once."""
        return all(
            end <= self._now or self.has_room(begin, end, count, nodes) for (begin, end, count), nodes in zip(*placed)
        )

    def has_room(self, begin: float, end: float, count: int, nodes: Nodes) -> bool:
        """Whether so many devices are left on these nodes together, for all of that time."""
        share = count // len(nodes)
        return all(node in self._profiles and self._profiles[node].least_between(begin, end) >= share for node in nodes)

    def room(self, begin: float, end: float, count: int) -> Iterator[Nodes]:
        """Nodes on which so many devices are left for all of that time, those first on which they leave the fewest."""
        left = {node: profile.least_between(begin, end) for node, profile in self._profiles.items()}
        if count <= self._whole:
            yield from ((node,) for node in sorted(left, key=left.__getitem__) if left[node] >= count)
            return
        empty, needed = [node for node, number in left.items() if number >= self._whole], -(-count // self._whole)
        if len(empty) >= needed:
            yield tuple(empty[:needed])

    def place(self, reservations: Mapping[str, Reservation], fixed: Mapping[str, Nodes]) -> bool:
        """Place all of these, the largest pieces first; false, and some not placed, where one finds no room.

        Args:
            reservations: those of jobs that have no place.
            fixed: job -> the nodes on which its piece of now lies in any case.
        """
        found: dict[str, list[Nodes]] = {name: [()] * len(reservation) for name, reservation in reservations.items()}
        pieces = [
            (not (name in fixed and begin <= self._now), -count, begin, end, name, number)
            for name, reservation in reservations.items()
            for number, (begin, end, count) in enumerate(reservation)
            if end > self._now
        ]
        for anywhere, negative, begin, end, name, number in sorted(pieces):
            room = self.room(begin, end, -negative)
            nodes = next(room, None) if anywhere else fixed[name]
            if nodes is None or not (anywhere or self.has_room(begin, end, -negative, nodes)):
                return False
            self._change(begin, end, -negative, nodes)
            found[name][number] = nodes
        self.of |= {name: Placed(reservations[name], tuple(nodes)) for name, nodes in found.items()}
        return True

    def _change(self, begin: float, end: float, count: int, nodes: Nodes) -> None:
        if end > self._now:
            for node in nodes:
                self._profiles[node].remove(((begin, end, count // len(nodes)),))


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
