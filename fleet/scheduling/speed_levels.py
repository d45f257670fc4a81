"""How much faster each further device makes a job: the levels between which a planner chooses."""

from __future__ import annotations

import numpy as np

from fleet.scheduling.rates import Counts, Floats, RateCurve


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
        rate_of: samples/s that at most m devices bring, for m = 0 .. peak; shape (peak + 1,).
        marginal: what the m-th device brings on the least concave curve above `rate_of`, for m = 1 .. peak, never
            rising; shape (peak,).
    """

    def __init__(self, curve: RateCurve, limit: int) -> None:
        counts, rates = curve.useful(limit)
        self.counts: Counts = np.concatenate(([0], counts))
        self.rates: Floats = np.concatenate(([0.0], rates))
        self.gains: Floats = np.diff(self.rates)
        reach = np.searchsorted(counts, np.arange(int(counts[-1]) + 1), side="right")
        self._level: Counts = reach.astype(np.int64)
        self.rate_of: Floats = self.rates[self._level]
        self.marginal = _concave_slopes(self.counts, self.rates)

    @property
    def peak(self) -> int:
        """The count with the highest rate."""
        return len(self.rate_of) - 1

    @property
    def top_rate(self) -> float:
        """Samples/s at the peak."""
        return float(self.rates[-1])

    def rate(self, count: int) -> float:
        """Samples/s of so many devices, those beyond the peak left idle."""
        return float(self.rate_of[min(count, self.peak)])

    def levels(self, devices: Counts) -> Counts:
        """The highest level that each of these numbers of devices allows."""
        return self._level[np.minimum(devices, self.peak)]

    def level(self, devices: int) -> int:
        """The highest level that so many devices allow."""
        return int(self._level[min(devices, self.peak)])

    def slowest(self, rate: float) -> int:
        """The lowest level with that rate or more; the last where none has it."""
        return min(int(np.searchsorted(self.rates, rate)), len(self.rates) - 1)


def _concave_slopes(counts: Counts, rates: Floats) -> Floats:
    """The slope of the upper hull of the points (count, rate), device by device."""
    hull = [(0, 0.0)]
    for count, rate in zip(counts[1:].tolist(), rates[1:].tolist()):
        while len(hull) > 1 and _below(hull[-2], hull[-1], (count, rate)):
            hull.pop()
        hull.append((count, rate))
    widths = np.diff([count for count, _ in hull])
    slopes: Floats = np.repeat(np.diff([rate for _, rate in hull]) / widths, widths)
    return slopes


def _below(left: tuple[int, float], middle: tuple[int, float], right: tuple[int, float]) -> bool:
    return (middle[1] - left[1]) * (right[0] - left[0]) <= (right[1] - left[1]) * (middle[0] - left[0])
