"""How much faster each further device makes a job: the levels between which a planner chooses."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats
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
