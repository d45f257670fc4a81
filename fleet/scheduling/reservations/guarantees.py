"""For every promised deadline a reservation, and room for newcomers only where all of them can be kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy

from fleet.scheduling.reservations.free_profile import FreeProfile
from fleet.scheduling.reservations.joint_filling import fill_jointly
from fleet.scheduling.reservations.reservation import Demand, Reservation, trained


class Guarantees:
    """Reservations that together fit on the machine, each long enough for its job.

    Args:
        demands: the demands of the jobs whose deadlines were promised.
        promised: job -> its reservation so far, to be kept where it still holds.
        now: seconds since the run began.
        devices: the number that work.
        jointly: whether room is also sought for all jobs at once, with which they have other counts than their levels.
    """

    def __init__(
        self,
        demands: Iterable[Demand],
        promised: Mapping[str, Reservation],
        now: float,
        devices: int,
        jointly: bool = True,
    ) -> None:
        self._now, self._devices, self._jointly = now, devices, jointly
        self._demands: dict[str, Demand] = {}
        self.reservations: dict[str, Reservation] = {}
        for demand in demands:
            reservation = promised.get(demand.name, ())
            if trained(reservation, demand, now) >= demand.samples:
                self.reservations[demand.name] = reservation
            elif not demand.possible(now):
                continue
            self._demands[demand.name] = demand
        self._profile = FreeProfile.beside(now, devices, self.reservations.values())
        if self._profile.least < 0 or len(self.reservations) < len(self._demands):
            self._mend()

    def copy(self) -> Guarantees:
        """The same, so that what is admitted leaves no trace here."""
        other = copy(self)
        other._demands, other.reservations = self._demands.copy(), self.reservations.copy()
        other._profile = copy(self._profile)
        return other

    def admit(self, demand: Demand, anew: bool = False) -> bool:
        """Whether a newcomer's deadline can be promised beside the others; if so it is, and has its reservation.

        It first tries the devices that are left over, then all jobs anew one after the other, then all jobs at once.

        Args:
            demand: what it needs.
            anew: whether the first way is left out.
        """
        reservation = None if anew else self._profile.reserve(demand)
        if reservation is not None:
            self.reservations[demand.name] = reservation
            self._demands[demand.name] = demand
            return True
        return self._replan({**self._demands, demand.name: demand})

    def hold(self, name: str, count: int) -> bool:
        """Reserve so many devices from now until the job is done, instead of what it has; false if they are not free.

        More devices than were promised, but no more moves: what nobody else has reserved may as well be promised.
        """
        others = (reservation for other, reservation in self.reservations.items() if other != name)
        held = FreeProfile.beside(self._now, self._devices, others).until_done(self._demands[name], count)
        if held is not None:
            self.reservations[name] = held
        return held is not None

    def earliest_end(self, demand: Demand) -> float:
        """When a job is done that has of the devices that nobody has reserved all that help it; infinite: never."""
        return self._profile.end_of(demand)

    def _replan(self, demands: dict[str, Demand]) -> bool:
        packed = _packed(demands, self._now, self._devices)
        if packed is None:
            joint = fill_jointly(list(demands.values()), self._now, self._devices) if self._jointly else None
            if joint is None:
                return False
            packed = FreeProfile.beside(self._now, self._devices, joint.values()), joint
        self._profile, self.reservations = packed
        self._demands = demands
        return True

    def _mend(self) -> None:
        """Devices or time were lost: meet every demand anew or, if that cannot be, those with the nearest deadlines."""
        if self._replan(self._demands):
            return
        self._profile, self.reservations = FreeProfile(self._now, self._devices), {}
        for demand in _by_deadline(self._demands):
            reservation = self._profile.reserve(demand)
            if reservation is not None:
                self.reservations[demand.name] = reservation
        self._demands = {name: self._demands[name] for name in self.reservations}


def _by_deadline(demands: Mapping[str, Demand]) -> list[Demand]:
    return sorted(demands.values(), key=lambda demand: (demand.deadline, demand.name))


def _packed(
    demands: Mapping[str, Demand], now: float, devices: int
) -> tuple[FreeProfile, dict[str, Reservation]] | None:
    """Each demand in the fewest device-seconds beside those with nearer deadlines; None if one does not fit."""
    profile, found = FreeProfile(now, devices), {}
    for demand in _by_deadline(demands):
        reservation = profile.reserve(demand)
        if reservation is None:
            return None
        found[demand.name] = reservation
    return profile, found
