"""Water-filling: the shares of devices with which all jobs end at once, and as early as can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Flags, Floats
from fleet.scheduling.model.state import JobState

_ROUNDING = 1e-9
_CORNERS = 4  # of an envelope that are looked at first, for each device that a job has on average


@dataclass(frozen=True, eq=False)
class WaterLevel:
    """What water-filling gives; arrays of shape (jobs,).

    Attributes:
        seconds: until all jobs end, T.
        shares: devices of each job on average, f_i(w_i / T).
        low, high: the counts between which a job with that share changes over; low may be 0.
        full: jobs that go at their fastest rate all the time.
    """

    seconds: float
    shares: Floats
    low: Counts
    high: Counts
    full: Flags

    @property
    def parts(self) -> Floats:
        """The part of the time that each job has `high` devices; the rest of it has `low`."""
        parts: Floats = (self.shares - self.low) / (self.high - self.low)
        return parts


def water_fill(jobs: Sequence[JobState], samples: Floats, devices: int) -> WaterLevel:
    """The least T with which all jobs can train their samples in T seconds on `devices` devices.

    A job that changes between counts of devices at will trains at any average rate under the concave envelope of the
    points (0, 0), (m, r(m)). Let f(v) be the inverse of the envelope: the devices that rate v takes on average, convex
    and piecewise linear. Then T is the least with

        sum_i f_i(w_i / T) <= M,    w_i / T <= max_m r_i(m).

    No schedule ends earlier: one that trains w_i in T seconds holds, by Jensen's inequality, at least T f_i(w_i / T)
    device-seconds for job i, and there are M T of them.

    Args:
        jobs: one or more.
        samples: w_i, that each has still to train, above 0; shape (jobs,).
        devices: M, one or more.
    """
    most = _CORNERS << (devices // len(jobs)).bit_length()
    filling, exact = _filled(jobs, samples, devices, most)
    return filling if exact else _filled(jobs, samples, devices, devices)[0]


def _filled(jobs: Sequence[JobState], samples: Floats, devices: int, most: int) -> tuple[WaterLevel, bool]:
    """`water_fill` with the first corners of each envelope, `most` of them; and whether nobody needs the others."""
    heads = [job.rate.first_corners(job.limit if job.limit < devices else devices, most) for job in jobs]
    lengths = np.array([head.shape[1] for head in heads])
    ends = np.cumsum(lengths)
    first, last = ends - lengths, ends - 1
    counts, rates = np.concatenate(heads, axis=1)
    before_counts, before_rates = _shifted(counts, first), _shifted(rates, first)
    prices = (counts - before_counts) / (rates - before_rates)  # devices for one more sample/s
    inverse = _inverse_time(samples, first, last, before_rates, prices, rates, lengths, devices)
    wanted = samples * inverse
    full = wanted >= rates[last] * (1 - _ROUNDING)
    steps = np.add.reduceat(before_rates < np.repeat(wanted, lengths) * (1 - _ROUNDING), first) - 1
    at = np.where(full, last, first + np.maximum(steps, 0))
    shares = np.clip(before_counts[at] + prices[at] * (wanted - before_rates[at]), before_counts[at], counts[at])
    shares[full] = counts[last[full]]
    low, high = before_counts[at].astype(np.int64), counts[at].astype(np.int64)
    return WaterLevel(1 / inverse, shares, low, high, full), not (full & (lengths == most)).any()


def pour_out(filling: WaterLevel, jobs: Sequence[JobState], samples: Floats, devices: int) -> WaterLevel:
    """Keep T, and give the devices that no job needs for it to jobs that end earlier with them.

    Where a job at its fastest rate decides T, devices are left over. That job keeps its share, and the others are
    filled anew, until no device is left or no job can use more. The arguments are `water_fill`'s.
    """
    shares, low, high, full = (getattr(filling, name).copy() for name in ("shares", "low", "high", "full"))
    while full.any() and not full.all() and (left := devices - int(high[full].sum())) > 0:
        others = np.flatnonzero(~full)
        again = water_fill([jobs[index] for index in others.tolist()], samples[others], left)
        if again.seconds > filling.seconds:
            break  # a curve that rises late needs more devices at once than are left
        shares[others], low[others], high[others], full[others] = again.shares, again.low, again.high, again.full
        if not again.full.any():
            break
    return WaterLevel(filling.seconds, shares, low, high, full)


def _inverse_time(
    samples: Floats, first: Counts, last: Counts, before: Floats, prices: Floats, rates: Floats, lengths: Counts,
    devices: int,
) -> float:  # fmt: skip
    """1 / T. The devices that are needed, as a function of x = 1 / T, are sum_e d_e (x - x_e)^+ over the bends e."""
    most = min(float((rates[last] / samples).min()), devices / float((samples * prices[first]).sum()))
    owner = np.repeat(samples, lengths)
    bends = before / owner
    inside = np.flatnonzero(bends < most)
    steeper = (prices - _shifted(prices, first)) * owner
    order = inside[np.argsort(bends[inside])]
    bends, steeper = bends[order], steeper[order]
    slope, offset = np.cumsum(steeper), np.cumsum(steeper * bends)
    needed_at_next = slope * np.append(bends[1:], math.inf) - offset
    place = int(np.argmax(needed_at_next >= devices))
    return min(most, (devices + float(offset[place])) / float(slope[place]))


def _shifted(values: npt.NDArray[Any], first: Counts) -> npt.NDArray[Any]:
    """The value before each in its row; 0 before the first."""
    shifted = np.empty_like(values)
    shifted[1:] = values[:-1]
    shifted[first] = 0
    return shifted
