"""Room for all jobs at once, where one after the other leaves none: prices move them out of each other's way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.reservations.reservation import Demand, FreeProfile, Reservation, joined, trained

SWEEPS = 40
STEEPNESS = (6.0, 12.0, 24.0, 48.0, 96.0)
"""How steeply the price of a device-second rises with the load; each for its share of the sweeps."""

_FLOOR = 0.02  # the price of a device-second that nobody else wants, so that nobody wastes it
_RESTARTS = 3  # of one job between two deadlines: at its begin, and at both ends of its turn on a shared device
_SPARE = 1e-6  # devices that rounding may take
_MOST_INFLATED = 1.3  # times the samples that are needed, for curves that are not concave


def fill_jointly(demands: Sequence[Demand], now: float, devices: int) -> dict[str, Reservation] | None:
    """Reservations that meet every demand, together at most `devices` at any time; None: none were found.

    Time is cut at the deadlines. In each interval k a job i has x_ik devices, on average: the convex program

        find x >= 0 with  sum_i x_ik <= M  and  sum_k L_k r_i(x_ik) >= samples_i,  k before the deadline of i,

    is solved by best responses to prices that rise steeply with the load of the others and the job's own, device by
    device; a job takes what brings most samples for the price until it has enough. A part of a device becomes a
    turn on a shared one (McNaughton, 1959), so every count is whole at every time. Restarts are taken from each
    interval's length, and every reservation is checked on its true curve in the end.

    Args:
        demands: the demands of all jobs, in any order.
        now: seconds since the run began.
        devices: M.
    """
    jobs = sorted(demands, key=lambda demand: (demand.deadline, demand.name))
    if not jobs:
        return {}
    bounds = _grid(jobs, now)
    if bounds is None:
        return None
    shares = _solved(jobs, bounds, devices)
    if shares is None:
        return None
    found = _taken_in_turns(jobs, bounds, shares)
    late = any(trained(found[job.name], job, now) < job.samples for job in jobs)
    return None if late else found


def _grid(jobs: Sequence[Demand], now: float) -> Floats | None:
    """Now and the deadlines, none nearer to the one before than its restarts allow; None: one is too near to now."""
    least = 2 * _RESTARTS * max(job.restart for job in jobs)
    bounds = [now]
    for job in jobs:
        if job.until > bounds[-1] + least:
            bounds.append(job.until)
    too_near = len(bounds) < 2 or jobs[0].until < bounds[1]
    return None if too_near else np.array(bounds)


def _solved(jobs: Sequence[Demand], bounds: Floats, devices: int) -> Floats | None:
    """x, shape (jobs, intervals); None if no sweep found room for all."""
    lengths = np.diff(bounds)
    responses = [_Response(job, bounds, devices) for job in jobs]
    shares, load = np.zeros((len(jobs), len(lengths))), np.zeros(len(lengths))
    for sweep in range(SWEEPS):
        steepness = STEEPNESS[sweep * len(STEEPNESS) // SWEEPS]
        enough = True
        for row, respond in enumerate(responses):
            load -= shares[row]
            if not respond.answer(load, steepness, shares[row]):
                return None
            load += shares[row]
            enough &= respond.enough
        if enough and load.max() <= devices - _SPARE:
            return shares
    return None


class _Response:
    """What one job takes, given the load of the others."""

    def __init__(self, demand: Demand, bounds: Floats, devices: int) -> None:
        inside = int(np.searchsorted(bounds, demand.until, side="right")) - 1
        lengths = np.diff(bounds)[:inside, np.newaxis]
        self._slopes = demand.levels.marginal[:devices]
        self._gains = (np.maximum(lengths - _RESTARTS * demand.restart, 0.0) * self._slopes).ravel()
        self._lengths = np.maximum(lengths[:, 0] - _RESTARTS * demand.restart, 0.0)
        self._rates = demand.levels.rate_of[: devices + 1]
        self._places = np.arange(len(self._slopes)) + 0.5
        self._devices, self._demand, self._target = devices, demand, demand.wanted
        self.enough = False

    def answer(self, load: Floats, steepness: float, share: Floats) -> bool:
        """Fill `share`; false if the job cannot have enough even alone."""
        inside = len(self._lengths)
        filling = (load[:inside, np.newaxis] + self._places) / self._devices - 1
        worth = self._slopes / (np.exp(np.minimum(steepness * filling, 50.0)) + _FLOOR)
        order = np.argsort(-worth.ravel(), kind="stable")
        gains = self._gains[order]
        samples = np.cumsum(gains)
        if not len(samples) or samples[-1] < self._demand.sufficient:
            return False
        target = min(self._target, float(samples[-1]))
        last = int(np.searchsorted(samples, target))
        taken = np.zeros(len(samples))
        taken[order[:last]] = 1.0
        taken[order[last]] = (target - (samples[last - 1] if last else 0.0)) / gains[last]
        share[:inside] = taken.reshape(inside, -1).sum(axis=1)
        self._check(share[:inside])
        return True

    def _check(self, share: Floats) -> None:
        """Whether it is enough on the true curve; if not, aim higher next time."""
        wanted = self._demand.wanted
        real = float(self._lengths @ np.interp(share, np.arange(len(self._rates)), self._rates))
        self.enough = real >= self._demand.sufficient
        if not self.enough and real > 0:
            self._target = min(self._target * wanted / real * (1 + 1e-6), _MOST_INFLATED * wanted)


def _taken_in_turns(jobs: Sequence[Demand], bounds: Floats, shares: Floats) -> dict[str, Reservation]:
    """Whole counts: in each interval those with a part of a device too much take turns on shared ones."""
    pieces: dict[str, list[tuple[float, float, int]]] = {job.name: [] for job in jobs}
    whole: Counts = np.floor(shares + 1e-12).astype(np.int64)
    parts: npt.NDArray[np.float64] = np.maximum(shares - whole, 0.0)
    for interval, (begin, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist())):
        place = 0.0  # on the current shared device, as a part of the interval
        for row, job in enumerate(jobs):
            count, part = int(whole[row, interval]), float(parts[row, interval])
            turn = place + part
            marks = [(0.0, 0), (place, 1), (turn, 0)] if turn <= 1 else [(0.0, 1), (turn - 1, 0), (place, 1)]
            times = [begin + (end - begin) * mark for mark, _ in marks] + [end]
            pieces[job.name] += [(times[i], times[i + 1], job.levels.useful(count + marks[i][1])) for i in range(3)]
            place = turn if turn < 1 else turn - 1
    return {name: joined(each) for name, each in pieces.items()}


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
