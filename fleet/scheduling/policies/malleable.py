"""Every job gets the share of the machine with which all end at once, by water-filling; nothing is shared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Flags, Floats
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_mean_epochs
from fleet.scheduling.model.remaining_epochs import remaining_samples
from fleet.scheduling.placing.placement import place_changed

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
    samples: Floats,
    first: Counts,
    last: Counts,
    before: Floats,
    prices: Floats,
    rates: Floats,
    lengths: Counts,
    devices: int,
) -> float:
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


def expected_end(jobs: Sequence[JobState], samples: Floats, counts: Counts, devices: int) -> float:
    """Seconds until all jobs end if those with devices keep them, and each other gets one as it becomes free.

    A job that waits begins, at the latest, when all devices have been busy with the work of the others (Graham, 1969):
    sum of the device-seconds / M + the longest of those that wait.

    Args:
        samples: what each job has still to train; shape (jobs,).
        counts: devices of each from now on, 0: it waits.
        devices: M.
    """
    rates = np.array([job.pace for job in jobs])
    for index in np.flatnonzero((rates <= 0) | (np.array([job.held for job in jobs]) != counts)).tolist():
        rates[index] = jobs[index].rate(max(1, int(counts[index])))
    seconds = samples / rates + np.array([job.restart for job in jobs])
    waits = counts == 0
    longest = float(seconds[~waits].max(initial=0.0))
    if not waits.any():
        return longest
    area = float((seconds * np.maximum(counts, 1)).sum())
    return max(longest, area / devices + float(seconds[waits].max()))


_WORTH = 4.0  # a move is worth it if the job trains so many times as long afterwards as moving takes
_TOLERANCE = 0.25  # part of its devices that a job may miss
_LOOKS = 12  # at the allocation, until the end that water-filling sees


@dataclass(frozen=True)
class Malleable(Policy):
    """Give each job one of the two counts of devices between which its share by water-filling lies.

    The shares are those with which all unfinished jobs end at the same time, and no plan ends earlier
    (`water_fill`). Shares are seldom whole. A job keeps its devices while its share lies between the corners of its
    rate curve that enclose its count; it moves when it has fallen so far behind, or so far ahead, that it does not.
    Devices that are left go to the jobs with the largest part of a further step; devices of jobs that are ahead go to
    jobs that are behind.

    Args:
        mean_epochs: mean of a job's whole training; the policy then knows nothing else of how long jobs train. None: it
            knows what the driver knows.

    Raises:
        ValueError: a number of epochs that is not above 0.
    """

    name: ClassVar[str] = "malleable"

    mean_epochs: float | None = None

    def __post_init__(self) -> None:
        check_mean_epochs(self.mean_epochs)

    def plan(self, state: State) -> Plan:
        """The jobs that start or move; the others go on."""
        jobs, devices = state.jobs, state.capacity
        if not jobs or devices < 1:
            return Plan(others_go_on=True)
        samples = remaining_samples(jobs, state.time, self.mean_epochs)
        filling = pour_out(water_fill(jobs, samples, devices), jobs, samples, devices)
        staying = state.staying if state.unavailable else state.running
        held = np.fromiter((len(staying.get(job.name, ())) for job in jobs), np.int64, len(jobs))
        counts = _counts(jobs, samples, filling, held, devices)
        changed = np.flatnonzero(counts != held).tolist()
        lost = [job.name for job, count in zip(jobs, counts.tolist()) if not count and job.name in state.running]
        wake = state.time + max(filling.seconds / _LOOKS, _WORTH * max(job.restart for job in jobs), 1.0)
        return Plan(
            place_changed(state, {jobs[index].name: int(counts[index]) for index in changed if counts[index]}, lost),
            others_go_on=True,
            stopped=tuple(lost),
            wake=wake if len(jobs) > 1 or changed else math.inf,
            bound=state.time + filling.seconds,
            end=state.time + expected_end(jobs, samples, counts, devices),
        )


def _counts(jobs: Sequence[JobState], samples: Floats, filling: WaterLevel, held: Counts, devices: int) -> Counts:
    """Devices of each job from now on."""
    counts = held.copy()
    left = devices - int(held.sum())
    movable = _movable(jobs, samples, held)
    behind = _behind(filling, held, movable)
    needed = int((filling.low - held)[behind].sum())
    if needed > left:
        left += _release(counts, _ahead(filling, held, movable), filling, needed - left)
    short = np.flatnonzero((counts < filling.high) & (counts <= held) & movable)
    for job in short[np.argsort((counts - filling.shares)[short], kind="stable")].tolist():
        wanted = max(counts[job] + 1, round(float(filling.shares[job])), filling.low[job])
        step = min(left, int(wanted - counts[job]))
        if step >= _TOLERANCE * counts[job]:
            counts[job] += step
            left -= step
        if not left:
            break
    return counts


def _behind(filling: WaterLevel, held: Counts, movable: Flags) -> Counts:
    """Jobs whose share is so much above what they hold that they should move."""
    missing = filling.shares - held
    return np.flatnonzero((held < filling.low) & (missing >= _TOLERANCE * held) & movable)


def _movable(jobs: Sequence[JobState], samples: Floats, held: Counts) -> Flags:
    """The jobs that wait, and those that train for long enough yet to be worth moving."""
    lost = np.array([job.restart for job in jobs]) * np.array([job.pace for job in jobs])
    movable: Flags = (held == 0) | (samples > _WORTH * lost)
    return movable


def _ahead(filling: WaterLevel, held: Counts, movable: Flags) -> Iterable[int]:
    """Jobs with more devices than their share, those that are farthest ahead first."""
    excess = np.where(held > 0, (held - filling.shares) / np.maximum(held, 1), 0.0)
    ahead = np.flatnonzero((held > filling.low) & (held > filling.shares) & movable)
    order: list[int] = ahead[np.argsort(-excess[ahead], kind="stable")].tolist()
    return order


def _release(counts: Counts, ahead: Iterable[int], filling: WaterLevel, needed: int) -> int:
    """Let jobs that are ahead step down until so many devices are free; return how many are."""
    released = 0
    for job in ahead:
        if released >= needed:
            break
        lower = filling.high[job] if counts[job] > filling.high[job] else filling.low[job]
        released += int(counts[job] - lower)
        counts[job] = lower
    return released
