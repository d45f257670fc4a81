"""How many devices nobody has reserved, from now to the end of time; and the cheapest place in it for one more job."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.reservations.reservation import Demand, Reservation, joined, trained


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
