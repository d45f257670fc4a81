"""Rate curves: how fast a job trains on how many devices (FLEET, MLSys'20, Appendix B.3)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Floats

DEFAULT_EFFICIENCY = 0.97  # of each further device, where no second count was measured
_ROUNDING = 1e-9  # rates that differ by less are equal
OBSERVED_WEIGHT = 0.5  # a whole epoch outweighs a short profile; one slow epoch does not overturn it


class _Table(NamedTuple):
    rates: Floats
    useful: tuple[Counts, Floats]  # the useful counts, and their rates
    width: int  # counts in `rates`
    peak: int  # the last useful count


@dataclass(frozen=True)
class RateCurve:
    """r(m), samples/s of one job on m devices.

    Measured counts are taken as they are. Between them the rate is interpolated; beyond the last, L, it follows Eq. 5

        r(m) = m * r(L) / L * q^(m - L),    q = r(M_b) / r(M_b - 1) * (M_b - 1) / M_b,    M_b = 2 * per_node,

    which is the printed formula where L is M_b, and goes on from the last measurement without a jump where it is not.
    Where M_b - 1 and M_b are not both measured, q is the loss for each device between the last two counts that are;
    where only one is, q is `expected`. q never exceeds 1: no growth faster than linear is made up from noise.

    With N virtual workers a step on m devices takes ceil(N / m) turns, so r is a staircase. Given `workers`,
    interpolation and Eq. 5 apply to the smooth r(m) / u(m), with u(m) = N / (m ceil(N / m)) the part of the devices
    that has work.

    Args:
        measured: samples/s by number of devices; at least one.
        per_node: devices of a node.
        limit: most devices that help; beyond it r stays as it is. None: `workers`, or no limit.
        workers: N, virtual workers of the job; None: not a staircase.
        expected: q where a single count was measured.
        most: samples/s that it does not exceed on any number of devices, as the data path feeds no more.

    Raises:
        ValueError: nothing measured, or a number that no machine can show.
    """

    measured: Mapping[int, float]
    per_node: int
    limit: int | None = None
    workers: int | None = None
    expected: float = DEFAULT_EFFICIENCY
    most: float = math.inf
    _tables: dict[str, _Table] = field(default_factory=dict, init=False, repr=False, compare=False)
    _envelopes: dict[int, tuple[Counts, Floats]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _corners: dict[tuple[int, int], Floats] = field(default_factory=dict, init=False, repr=False, compare=False)
    _capped: dict[tuple[float, int], RateCurve] = field(default_factory=dict, init=False, repr=False, compare=False)
    _held_up: dict[float, RateCurve] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.measured:
            raise ValueError("a rate curve needs at least one measurement: the rate on one device")
        for count, rate in self.measured.items():
            _check_rate(count, rate)
        for name in ("per_node", "limit", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be 1 or more")
        if not self.most > 0:
            raise ValueError(f"most is {self.most} samples/s; it must be above 0")
        object.__setattr__(self, "measured", {int(count): float(rate) for count, rate in sorted(self.measured.items())})
        object.__setattr__(self, "limit", self.workers if self.limit is None else self.limit)

    def __call__(self, count: int) -> float:
        """r(count), samples/s."""
        if count < 1:
            raise ValueError(f"a rate is asked for {count} devices; a job runs on one or more")
        return self._table(count).rates.item(count - 1)

    @cached_property
    def single(self) -> float:
        """r(1), samples/s."""
        return self(1)

    def rates(self, limit: int) -> Floats:
        """r(1) .. r(limit), samples/s; float64 of shape (limit,), read-only."""
        return self._table(limit).rates[:limit]

    def useful(self, limit: int) -> tuple[Counts, Floats]:
        """The counts up to `limit` that are worth giving, and their rates: each is faster than every smaller count.

        So they end at the peak, and hold one count of each plateau, its first. With `workers` only the first count of
        each stair competes: within a stair a difference is noise.
        """
        table = self._tables.get("longest")
        if table is None or table.width < limit:
            table = self._table(limit)
        if table.peak <= limit:
            return table.useful
        counts, rates = table.useful
        inside = int(counts.searchsorted(limit, side="right"))
        return counts[:inside], rates[:inside]

    def rising(self, limit: int) -> tuple[Counts, Floats]:
        """The counts up to `limit` that are faster than every smaller one, also within a stair, and their rates."""
        rates = self.rates(limit)
        found = np.flatnonzero(_rises(rates, 1 + _ROUNDING))
        return found + 1, rates[found]

    def envelope(self, limit: int) -> tuple[Counts, Floats]:
        """The corners of the least concave function above (0, 0) and all (m, r(m)), m up to `limit`; without (0, 0).
        Points on its edges are among them.

        A job that changes between two neighbouring corners trains at any average rate between theirs.
        """
        envelope = self._envelopes.get(limit)
        if envelope is None:
            envelope = self._envelopes[limit] = concave_corners(*self.rising(limit))
        return envelope

    def first_corners(self, limit: int, most: int) -> Floats:
        """The first corners of `envelope(limit)`, counts above rates; float64 of shape (2, `most` or fewer)."""
        corners = self._corners.get((limit, most))
        if corners is None:
            counts, rates = self.envelope(limit)
            corners = self._corners[limit, most] = np.stack((counts[:most], rates[:most]))
        return corners

    def peak(self, limit: int) -> int:
        """The smallest useful count up to `limit` with the highest rate."""
        return int(self.useful(limit)[0][-1])

    def observe(self, count: int, rate: float) -> RateCurve:
        """A new curve that has learnt that `count` devices trained `rate` samples/s.

        The rate that was known at that count counts half, and the rate observed now counts half.
        """
        _check_rate(count, rate)
        before = self.measured.get(count, rate)
        blended = before + OBSERVED_WEIGHT * (rate - before)
        return replace(self, measured={**self.measured, count: blended})

    def scaled(self, factor: float) -> RateCurve:
        """A new curve of a job that is so many times as fast on any number of devices."""
        measured = {count: rate * factor for count, rate in self.measured.items()}
        return replace(self, measured=measured)

    def held_up(self, seconds: float) -> RateCurve:
        """The curve of a job for which each sample takes so many seconds more, on any number of devices."""
        if seconds not in self._held_up:
            measured = {count: 1 / (1 / rate + seconds) for count, rate in self.measured.items()}
            self._held_up[seconds] = replace(self, measured=measured)
        return self._held_up[seconds]

    @property
    def efficiency(self) -> float | None:
        """q, as measured; None where a single count was."""
        return self._decay() if len(self.measured) > 1 else None

    def capped(self, most: float, limit: int) -> RateCurve:
        """The curve of a job on up to `limit` devices that gets at most so many samples/s; itself if it wants no more.

        Counts beyond the first that reaches `most` are not useful any more.
        """
        known = self._capped.get((most, limit))
        if known is None:
            enough = float(self.rates(limit).max()) <= most
            curve = replace(self, most=min(most, self.most))
            known = self._capped[most, limit] = self if enough else curve
        return known

    def _table(self, limit: int) -> _Table:
        """The table so far, made longer if it ends before `limit`."""
        table = self._tables.get("longest")
        if table is None or table.width < limit:
            width = max(limit, self.limit or 0, 0 if table is None else 2 * table.width)
            table = self._tables["longest"] = self._tabulated(width)
        return table

    def _tabulated(self, width: int) -> _Table:
        reach = width if self.limit is None else min(width, self.limit)
        rates = self._measured_part()[:reach]
        if len(rates) < reach:
            rates = np.concatenate((rates, self._beyond(len(rates), reach)))
        if reach < width:
            rates = np.concatenate((rates, np.full(width - reach, rates[-1])))
        rates = np.minimum(rates, self.most)
        rates.flags.writeable = False
        useful = self._useful(rates)
        return _Table(rates, (useful, rates[useful - 1]), width, int(useful[-1]))

    def _measured_part(self) -> Floats:
        """r(1) .. r(L), L the last measured count: the measured ones as they are, the others interpolated."""
        known, values = np.array(list(self.measured)), np.array(list(self.measured.values()))
        first, last = int(known[0]), int(known[-1])
        if len(known) == last:
            return values
        counts = np.arange(1, last + 1)
        smooth = values / self._utilisation(known)
        below = counts[: first - 1]
        table = np.interp(counts, known, smooth)
        table[: first - 1] = smooth[0] / first * below * self.expected ** (below - first)
        table *= self._utilisation(counts)
        table[known - 1] = values
        return table

    def _beyond(self, last: int, reach: int) -> Floats:
        """r(last + 1) .. r(reach): Eq. 5."""
        counts = np.arange(last + 1, reach + 1)
        rates: Floats = self._efficiency(last) * counts * self._decay() ** (counts - last) * self._utilisation(counts)
        return rates

    def _decay(self) -> float:
        """q of Eq. 5."""
        counts = list(self.measured)
        if len(counts) == 1:
            return self.expected
        a, b = counts[-2:]
        m_b = 2 * self.per_node
        if m_b - 1 in self.measured and m_b in self.measured:
            a, b = m_b - 1, m_b
        return min(1.0, math.pow(self._efficiency(b) / self._efficiency(a), 1 / (b - a)))

    def _efficiency(self, measured: int) -> float:
        """Samples/s that each device with work brings at a measured count, r(m) / (m u(m))."""
        share = 1 / measured if self.workers is None else -(-self.workers // measured) / self.workers
        return self.measured[measured] * share

    def _utilisation(self, counts: Counts) -> Floats | float:
        """u(m), the part of m devices that has work in a step."""
        if self.workers is None:
            return 1.0
        utilisation: Floats = self.workers / (counts * -(-self.workers // counts))
        return utilisation

    def _useful(self, rates: Floats) -> Counts:
        """The counts whose rate exceeds every smaller count's."""
        counts = np.arange(1, len(rates) + 1)
        if self.workers is not None:
            counts = counts[_rises(-self.workers // counts)]  # fewer turns than before
        return counts[_rises(rates[counts - 1])]


def expected_efficiency(known: Sequence[float]) -> float:
    """q of Eq. 5 where nobody has measured it: the median of those that somebody has, and of 0.97.

    Args:
        known: those, ascending; there may be very many.
    """
    place = bisect_left(known, DEFAULT_EFFICIENCY)
    middle = (len(known) // 2, (len(known) + 1) // 2)
    low, high = (known[at - (at > place)] if at != place else DEFAULT_EFFICIENCY for at in middle)
    return (low + high) / 2


def _rises(values: npt.NDArray[Any], by: float = 1.0) -> npt.NDArray[np.bool_]:
    """Which values exceed all before them, so many times; the first does."""
    rises = np.ones(len(values), bool)
    np.greater(values[1:], by * np.maximum.accumulate(values)[:-1], out=rises[1:])
    return rises


def concave_corners(counts: Counts, rates: Floats) -> tuple[Counts, Floats]:
    """The points of the upper concave hull, from (0, 0) to the last; without (0, 0)."""
    gains = np.diff(rates, prepend=0.0) / np.diff(counts, prepend=0)
    if (np.diff(gains) <= 0).all():
        return counts, rates
    kept: list[tuple[int, float]] = [(0, 0.0)]
    for count, rate in zip(counts.tolist(), rates.tolist()):
        while len(kept) > 1 and _gain(kept[-2], kept[-1]) < _gain(kept[-1], (count, rate)):
            kept.pop()
        kept.append((count, rate))
    return np.array([count for count, _ in kept[1:]]), np.array([rate for _, rate in kept[1:]])


def _gain(before: tuple[int, float], after: tuple[int, float]) -> float:
    return (after[1] - before[1]) / (after[0] - before[0])


def _check_rate(count: int, rate: float) -> None:
    if count != int(count) or count < 1:
        raise ValueError(f"a rate was measured on {count} devices; a job runs on one or more")
    if not (math.isfinite(rate) and rate > 0):
        raise ValueError(f"the rate on {count} devices is {rate} samples/s; it must be above 0 and finite")
