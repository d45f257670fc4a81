"""Devices reserved over time for a job with a deadline: its speed levels, and the profile of what is free."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve, concave_corners


class SpeedLevels:
    """The counts of devices that are worth giving to a job, and what each brings.

    Level 0 is no device; each further level is faster than all before it, and the last is the curve's peak.

    Args:
        curve: r(m), samples/s.
        limit: most devices that the job can use.

    Attributes:
        counts: devices of each level; shape (levels + 1,).
        rates: samples/s of each level; shape (levels + 1,).
        gains: what each level adds to the one below; shape (levels,).
        steps: (devices of each level from the first on, samples/s that each one of them adds to the level below).
        rate_of: samples/s that at most m devices bring, for m = 0 .. peak; shape (peak + 1,).
        peak: the count with the highest rate.
        top_rate: samples/s there.
        marginal: what the m-th device brings on the least concave curve above `rate_of`, for m = 1 .. peak, never
            rising; shape (peak,).
    """

    def __init__(self, curve: RateCurve, limit: int) -> None:
        self._set(*curve.useful(limit))

    @classmethod
    def among(cls, counts: Counts, rates: Floats) -> SpeedLevels:
        """The levels of a job that has one of these counts alone, ascending, each of them faster than all before."""
        levels = cls.__new__(cls)
        levels._set(counts, rates)
        return levels

    def _set(self, counts: Counts, rates: Floats) -> None:
        self.counts: Counts = np.concatenate(([0], counts))
        self.rates: Floats = np.concatenate(([0.0], rates))
        self.gains: Floats = np.diff(self.rates)
        self._level_rates: list[float] = self.rates.tolist()
        self.steps: list[tuple[int, float]] = list(zip(counts.tolist(), (self.gains / np.diff(self.counts)).tolist()))
        reach = np.searchsorted(counts, np.arange(int(counts[-1]) + 1), side="right")
        self._level: Counts = reach.astype(np.int64)
        self._levels: list[int] = reach.tolist()
        self.rate_of: Floats = self.rates[self._level]
        self._rates: list[float] = self.rate_of.tolist()
        self.peak = len(self._rates) - 1
        self.top_rate = self._rates[-1]
        self.marginal = _concave_slopes(counts, rates)

    def rate(self, count: int) -> float:
        """Samples/s of so many devices, those beyond the peak left idle."""
        return self._rates[min(count, self.peak)]

    def levels(self, devices: Counts) -> Counts:
        """The highest level that each of these numbers of devices allows."""
        return self._level[np.minimum(devices, self.peak)]

    def level(self, devices: int) -> int:
        """The highest level that so many devices allow."""
        return self._levels[min(devices, self.peak)]

    def useful(self, devices: int) -> int:
        """How many of so many devices are worth giving."""
        level = self.level(devices)
        return self.steps[level - 1][0] if level else 0

    def slowest(self, rate: float) -> int:
        """The lowest level with that rate or more; the last where none has it."""
        return min(bisect_left(self._level_rates, rate), len(self.steps))


def _concave_slopes(counts: Counts, rates: Floats) -> Floats:
    """The slope of the upper hull of the points (count, rate), device by device; rounding makes none rise."""
    corners, values = concave_corners(counts, rates)
    widths = np.diff(corners, prepend=0)
    slopes: Floats = np.minimum.accumulate(np.diff(values, prepend=0.0) / widths)
    return np.repeat(slopes, widths)


MARGIN = 1e-6
"""Seconds by which a reservation is too long, and ends before the deadline, at least: what rounding may take."""

Reservation = tuple[tuple[float, float, int], ...]
"""(begin, end, devices), seconds since the run began, one after the other, one device or more each."""


@dataclass(frozen=True)
class Demand:
    """What a job needs by when.

    Attributes:
        name: the job's name.
        samples: what it must still train.
        deadline: seconds since the run began.
        levels: its speeds.
        restart: seconds that getting other devices costs.
        held: devices that it has now; 0 also where fewer would be as fast: it moves then.
        ready: when it trains, or trained, on these.
        margin: seconds by which its reservation is too long, and ends before the deadline.
    """

    name: str
    samples: float
    deadline: float
    levels: SpeedLevels
    restart: float = 0.0
    held: int = 0
    ready: float = 0.0
    margin: float = MARGIN

    @classmethod
    def of(cls, job: JobState, levels: SpeedLevels, now: float, margin: float = MARGIN) -> Demand:
        """What `job` needs at `now`."""
        held = job.held if job.pace and job.held == levels.useful(job.held) else 0
        left = max(0.0, job.remaining_at(now))  # a live job can be later than its pace said
        return cls(job.name, left, job.deadline, levels, job.restart, held, job.ready, margin)

    @property
    def until(self) -> float:
        """When it should be done."""
        return self.deadline - self.margin

    @property
    def wanted(self) -> float:
        """Samples for which devices are reserved."""
        return self.samples + self.levels.top_rate * self.margin

    @property
    def sufficient(self) -> float:
        """Samples that will do where there is no room for those wanted, delays having taken some of the margin."""
        return self.samples + self.levels.top_rate * self.margin / 10

    def possible(self, now: float) -> bool:
        """Whether it could be done in time if it had all devices that it can use, from now on."""
        return (self.until - now - self.restart) * self.levels.top_rate >= self.sufficient or self._staying(now)

    def least_device_seconds(self, now: float) -> float:
        """What it needs of an otherwise empty machine, in the slowest way that is in time."""
        window = self.until - now - self.restart
        if window <= 0:
            return math.inf
        return float(self.levels.counts[self.levels.slowest(self.wanted / window)]) * window

    def _staying(self, now: float) -> bool:
        return self.held > 0 and (self.until - max(now, self.ready)) * self.levels.rate(self.held) >= self.sufficient


def trained(reservation: Reservation, demand: Demand, now: float) -> float:
    """Samples that the job trains from `now` on if it gets its reservation, and nothing else.

    Each change of the number of devices costs a restart; to go on with the devices that it has now costs nothing.
    """
    total = 0.0
    for begin, end, devices in reservation:
        if end > now:
            stays = begin <= now and devices == demand.held
            first = max(now, demand.ready) if stays else max(now, begin) + demand.restart
            total += demand.levels.rate(devices) * max(0.0, end - first)
    return total


def can_wait(
    reservation: Reservation, demand: Demand, count: int, now: float, wake: float, home: float = math.inf
) -> bool:
    """Whether a job that has `count` devices from now on can take up its reservation whenever until `wake`, in time.

    Args:
        home: until when it need not move to go on with the same number.
    """
    marks = {bound for begin, end, _ in reservation for bound in (begin, end, end - demand.restart)}
    if wake < math.inf:
        marks.add(wake)
    ready = demand.ready if count == demand.held else now + demand.restart
    for time in sorted(mark for mark in {*marks, now, ready} if now <= mark <= wake):
        done = demand.levels.rate(count) * max(0.0, time - max(now, ready)) if count else 0.0
        later = replace(demand, samples=demand.samples - done, held=count if time < home else 0, ready=ready)
        if trained(reservation, later, time) < later.samples:
            return False
    return True


def next_bound(reservation: Reservation, now: float) -> float:
    """When after `now` the reserved number changes for the first time; infinite: never."""
    return min((bound for begin, end, _ in reservation for bound in (begin, end) if bound > now), default=math.inf)


def reserved_at(reservation: Reservation, now: float) -> int:
    """Devices that are reserved at `now`."""
    for begin, end, devices in reservation:
        if begin <= now < end:
            return devices
    return 0


def next_rise(reservation: Reservation, now: float, devices: int) -> float:
    """When after `now` more than so many devices are reserved for the first time; infinite: never."""
    return next((begin for begin, _, count in reservation if begin > now and count > devices), math.inf)


def joined(pieces: Iterable[tuple[float, float, int]]) -> Reservation:
    """Pieces in the order of time as a reservation: no empty ones, and those alike that touch are one."""
    whole: list[tuple[float, float, int]] = []
    for begin, end, devices in pieces:
        if end <= begin or not devices:
            continue
        if whole and whole[-1][1] == begin and whole[-1][2] == devices:
            whole[-1] = (whole[-1][0], end, devices)
        else:
            whole.append((begin, end, devices))
    return tuple(whole)


class FreeProfile:
    """Free devices, piece by piece of time.

    Args:
        now: where time begins, seconds since the run began.
        devices: the number that are free for ever.
    """

    def __init__(self, now: float, devices: int) -> None:
        self._begin = now
        self._times: Floats = np.array([now], np.float64)
        self._free: Counts = np.array([devices], np.int64)

    @classmethod
    def beside(cls, now: float, devices: int, reservations: Iterable[Reservation]) -> FreeProfile:
        """What these reservations leave of so many devices; below 0 where they are more."""
        pieces = [piece for reservation in reservations for piece in reservation if piece[1] > now]
        profile = cls(now, devices)
        if pieces:
            begins, ends, counts = (np.array(column) for column in zip(*pieces))
            times, where = np.unique(np.concatenate(([now], np.maximum(begins, now), ends)), return_inverse=True)
            changes = np.bincount(where, np.concatenate(([0], counts, -counts)), len(times))
            profile._times, profile._free = times, devices - np.cumsum(np.rint(changes).astype(np.int64))
        return profile

    @property
    def least(self) -> int:
        """The fewest that are free at any time."""
        return int(self._free.min())

    def least_between(self, begin: float, end: float) -> int:
        """The fewest that are free at any time from `begin` until `end`."""
        first = max(0, int(np.searchsorted(self._times, begin, side="right")) - 1)
        return int(self._free[first : max(first + 1, int(np.searchsorted(self._times, end)))].min())

    def reserve(self, demand: Demand) -> Reservation | None:
        """Reserve what the job needs in the fewest device-seconds; None, and nothing reserved, if it does not fit.

        On a concave curve the fewest devices for the longest time are the cheapest, so all of the time until the
        deadline is filled up to one level (progressive filling, ElasticFlow, ASPLOS'23, 4.1), any number of devices
        being a level; the topmost only as long as it is needed, and as late as possible: early devices are the ones
        that a job with a near deadline will ask for.
        """
        count = int(np.searchsorted(self._times, demand.until))
        if not count:
            return None
        times = np.append(self._times[:count], demand.until)
        levels = demand.levels.levels(self._free[:count])
        samples = self._by_level(times, levels, demand)
        if samples[-1] < demand.sufficient:
            return None
        wanted = min(demand.wanted, float(samples[-1]))
        level = int(np.searchsorted(samples, wanted))
        if demand.restart:
            found = self._with_restarts(demand, times, levels, level + 1)
        else:
            found = _filled(demand, times, levels, level, wanted - (float(samples[level - 1]) if level else 0.0))
        if found is not None:
            self.remove(found)
        return found

    def until_done(self, demand: Demand, count: int) -> Reservation | None:
        """Find so many devices from now on until the job is done; None if that is too late, or they are not free."""
        if not count:
            return None
        rate = demand.levels.rate(count)
        begin = max(self._begin, demand.ready) if count == demand.held else self._begin + demand.restart
        end = min(begin + demand.wanted / rate, demand.until)
        free = self._free[: np.searchsorted(self._times, end)]
        if (end - begin) * rate < demand.sufficient or not len(free) or free.min() < count:
            return None
        return ((self._begin, end, count),)

    def end_of(self, demand: Demand) -> float:
        """When a job is done that has all of them which help it, seconds since the run began; infinite: never."""
        ready = max(self._begin, demand.ready) if demand.held else self._begin + demand.restart
        rates = demand.levels.rates[demand.levels.levels(np.maximum(self._free, 0))].tolist()
        left = demand.samples
        for begin, end, rate in zip(self._times.tolist(), [*self._times[1:].tolist(), math.inf], rates):
            begin = max(begin, ready)
            if rate > 0 and (end - begin) * rate >= left:
                return begin + left / rate
            left -= rate * max(0.0, end - begin) if rate > 0 else 0.0
        return math.inf

    def remove(self, reservation: Reservation) -> None:
        """These devices are free no longer."""
        bounds = [
            max(bound, self._begin) for begin, end, _ in reservation for bound in (begin, end) if end > self._begin
        ]
        if not bounds:
            return
        times = np.unique(np.concatenate((self._times, bounds)))
        free = self._free[np.searchsorted(self._times, times, side="right") - 1]
        for begin, end, devices in reservation:
            if end > self._begin:
                free[np.searchsorted(times, max(begin, self._begin)) : np.searchsorted(times, end)] -= devices
        self._times, self._free = times, free

    def _by_level(self, times: Floats, levels: Counts, demand: Demand) -> Floats:
        """Samples that the job could train if it were never given more than each level; shape (levels,)."""
        gains = demand.levels.gains
        seconds = np.bincount(levels, np.diff(times), len(gains) + 1)[::-1].cumsum()[::-1][1:]
        samples: Floats = np.cumsum(gains * seconds)
        return samples

    def _with_restarts(self, demand: Demand, times: Floats, levels: Counts, first: int) -> Reservation | None:
        """The cheaper of going on as it is, and of the lowest level at which restarts leave time enough."""
        found = [stay for stay in [self.until_done(demand, demand.held)] if stay]
        for level in range(first, len(demand.levels.counts)):
            counts = demand.levels.counts[np.minimum(levels, level)]
            smooth = _smoothed(
                joined(zip(times[:-1].tolist(), times[1:].tolist(), counts.tolist())), demand, self._begin
            )
            samples = trained(smooth, demand, self._begin)
            if samples >= demand.sufficient:
                found.append(_trimmed(smooth, demand, self._begin, samples - demand.wanted))
                break
        return min(found, key=device_seconds, default=None)


def device_seconds(reservation: Reservation) -> float:
    """What a reservation takes of the machine."""
    return sum((end - begin) * devices for begin, end, devices in reservation)


def _filled(demand: Demand, times: Floats, levels: Counts, level: int, samples: float) -> Reservation:
    """All of the time up to `level`, and of the next one as much of its end as brings so many more samples."""
    fits = levels > level
    behind = np.where(fits, np.diff(times), 0.0)[::-1].cumsum()[::-1]  # seconds of the next level from each time on
    seconds = min(samples / float(demand.levels.gains[level]), float(behind[0]))
    piece = int(np.searchsorted(-behind, -seconds, side="right")) - 1
    start = float(times[piece + 1] - (seconds - (behind[piece + 1] if piece + 1 < len(behind) else 0.0)))
    low = demand.levels.counts[np.minimum(levels, level)].tolist()
    high = demand.levels.counts[np.minimum(levels, level + 1)].tolist()
    at = times.tolist()
    before = list(zip(at[:piece], at[1 : piece + 1], low[:piece]))
    split = [(at[piece], start, low[piece]), (start, at[piece + 1], high[piece])]
    return joined(before + split + list(zip(at[piece + 1 : -1], at[piece + 2 :], high[piece + 1 :])))


def _smoothed(reservation: Reservation, demand: Demand, now: float) -> Reservation:
    """Fewer changes where a change costs more than it brings: two neighbours become one of the smaller count."""
    whole: list[tuple[float, float, int]] = []
    for piece in reservation:
        whole.append(piece)
        while len(whole) > 1 and whole[-2][1] == whole[-1][0]:
            (begin, _, left), (_, end, right) = whole[-2:]
            flat = (begin, end, min(left, right))
            if trained((flat,), demand, now) < trained((whole[-2], whole[-1]), demand, now):
                break
            whole[-2:] = [flat]
    return tuple(whole)


def _trimmed(reservation: Reservation, demand: Demand, now: float, surplus: float) -> Reservation:
    """Without what trains more than is needed: at the end if the job goes on as it is now, else at the begin."""
    pieces = list(reservation)
    stays = pieces[0][0] <= now and pieces[0][2] == demand.held
    while surplus > 0:
        begin, end, devices = pieces[-1 if stays else 0]
        gained = trained((pieces[-1 if stays else 0],), demand, now)
        if gained > surplus or len(pieces) == 1:
            cut = min(surplus / demand.levels.rate(devices), end - begin)
            pieces[-1 if stays else 0] = (begin, end - cut, devices) if stays else (begin + cut, end, devices)
            break
        surplus -= gained
        del pieces[-1 if stays else 0]
    return tuple(pieces)
