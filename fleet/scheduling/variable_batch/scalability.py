"""How fast a job trains by its devices and its batch (Saxena et al., 2020, III-B: the job scalability analyser)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.job_state import JobState, Scaling
from fleet.scheduling.variable_batch.allocation_table import least_count

MODES = ("variable", "fixed", "max", "min")
"""What batches a job may have: all of its range, its own, or an end of the range."""
TRIED = 65
"""Batches of a range that are tried where each has to be asked for."""

_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class BatchCurve:
    """A job's throughput scaling factor on 1, 2, ... devices, each with the batch that is best there.

    Attributes:
        factors: T_j(b_opt(k), k), Eq. 1; -inf where no batch will do; float64 of shape (limit,).
        batches: b_opt(k), samples of a step of the whole job, Eq. 2; 0 where none will do, or where it is not known.
    """

    factors: Floats
    batches: Counts

    @cached_property
    def least(self) -> int | None:
        """The fewest devices on which the job can run; None: there is no such number."""
        return least_count(self.factors)

    @cached_property
    def key(self) -> bytes:
        """A value that is equal for jobs that scale alike."""
        return self.factors.tobytes()


class AllReduceTimes:
    """t_comm(p, k), seconds in which k devices sum p weights, interpolated between measurements.

    One device takes none. Below the fewest measured weights, and beyond the most, the time is proportional to them.

    Args:
        weights: the measured numbers of weights, ascending, above 0.
        seconds: devices -> seconds for each of `weights`.

    Raises:
        ValueError: nothing measured, or numbers that no machine can show.
    """

    def __init__(self, weights: tuple[float, ...], seconds: Mapping[int, tuple[float, ...]]) -> None:
        if not weights or any(b <= a for a, b in zip((0.0, *weights), weights)):
            raise ValueError(f"weights are {weights}; they must be above 0, and ascend")
        for count, row in seconds.items():
            if count < 1 or len(row) != len(weights) or not all(math.isfinite(time) and time >= 0 for time in row):
                raise ValueError(f"{row} s on {count} devices; one time of 0 or more for each of the {weights} weights")
        self._weights = np.array((0.0, *weights))
        self._rows = {1: np.zeros(len(weights) + 1)} | {
            count: np.array((0.0, *row)) for count, row in sorted(seconds.items()) if count > 1
        }

    @property
    def limit(self) -> int:
        """Most devices that were measured."""
        return max(self._rows)

    def seconds(self, weights: float) -> Floats:
        """t_comm(weights, k) for k = 1 .. `limit`; shape (limit,)."""
        beyond = max(1.0, weights / float(self._weights[-1]))
        known = [float(np.interp(weights, self._weights, row)) * beyond for row in self._rows.values()]
        return np.interp(np.arange(1, self.limit + 1), list(self._rows), known)


@dataclass(frozen=True, eq=False)
class Scalability:
    """Rates of a job: T_j(b, k) = b / (t_proc(ceil(b / k)) + t_comm(p, k)), samples/s.

    t_proc is interpolated between measurements; below the smallest measured batch it stays as it is there. Where
    ceil(b / k) exceeds the largest measured batch, b_max, it does not fit on a device: the rate is 0. So it is where a
    device would have no sample, and on more devices than `reducing` was measured on.

    Args:
        processing: samples on one device -> seconds of an iteration, t_proc.
        weights: p, of the model.
        reducing: t_comm of the cluster.

    Raises:
        ValueError: nothing measured, or a number that no machine can show.
    """

    processing: Mapping[int, float]
    weights: float
    reducing: AllReduceTimes
    _curves: dict[tuple[int, int, int], BatchCurve] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.processing:
            raise ValueError("the time of an iteration was measured for no batch; measure at least one")
        for batch, seconds in self.processing.items():
            if batch < 1 or not (math.isfinite(seconds) and seconds > 0):
                raise ValueError(f"an iteration with {batch} samples took {seconds} s; both must be above 0")
        if not (math.isfinite(self.weights) and self.weights >= 0):
            raise ValueError(f"weights is {self.weights}; it must be 0 or more, and finite")
        object.__setattr__(self, "processing", dict(sorted(self.processing.items())))

    @property
    def fits(self) -> int:
        """b_max, the most samples that fit on one device."""
        return max(self.processing)

    @property
    def limit(self) -> int:
        """Most devices for which there are rates."""
        return self.reducing.limit

    @property
    def single(self) -> float:
        """T_j(b_max, 1), samples/s: the baseline of the scaling factor."""
        return self.fits / self.processing[self.fits]

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """As `Scaling.rate`; 0 where the batch does not fit. None: as many as fit. Nodes are in t_comm already."""
        chosen = self.fits * devices if batch is None else batch
        if not 1 <= devices <= self.limit:
            return 0.0
        return float(self.rates(np.array([chosen]))[0, devices - 1])

    def rates(self, batches: Counts) -> Floats:
        """T_j(b, k) for these batches and k = 1 .. `limit`; shape (batches, limit)."""
        counts, whole = np.arange(1, self.limit + 1), batches[:, np.newaxis]
        each = -(-whole // counts)
        processing = np.interp(each, list(self.processing), list(self.processing.values()))
        rates = whole / (processing + self._summing)
        return np.where((each <= self.fits) & (whole >= counts), rates, 0.0)

    @cached_property
    def _summing(self) -> Floats:
        """t_comm(p, k), k = 1 .. `limit`."""
        return self.reducing.seconds(self.weights)

    def worker_rate(self, kind: str) -> float:
        """As `Scaling.worker_rate`, of a worker whose mini-batch is the largest that fits; kinds are alike."""
        return 1.0 / self.processing[self.fits]

    def best(self, least: int, most: int, limit: int) -> BatchCurve:
        """The factors on up to `limit` devices with the best batch from `least` to `most`, the smallest on ties."""
        if not 1 <= least <= most:
            raise ValueError(f"a batch of {least} to {most} samples; name 1 <= least <= most")
        key = least, most, limit
        if key not in self._curves:
            batches = np.arange(least, most + 1)
            self._curves[key] = _best(self.rates(batches)[:, :limit], batches, self.single)
        return self._curves[key]


def batches_of(job: JobState, mode: str) -> tuple[int, int] | None:
    """The least and the most samples that a step of the job may have under that mode; None: nobody knows."""
    if job.batches is None or mode == "fixed":
        return None if job.batch is None else (job.batch, job.batch)
    least, most = job.batches
    return {"max": (most, most), "min": (least, least)}.get(mode, (least, most))


def curve_of(job: JobState, mode: str, limit: int) -> BatchCurve:
    """The scaling factors of a job on up to `limit` devices; on fewer than its minimum it cannot run.

    A job without `scaling`, or without a known batch, scales as its rate curve says, whatever its batch.

    Args:
        mode: one of `MODES`.
    """
    curve = _curve(job, batches_of(job, mode), min(limit, job.limit))
    few = np.arange(1, len(curve.factors) + 1) < job.minimum_devices
    return BatchCurve(np.where(few, -np.inf, curve.factors), np.where(few, 0, curve.batches)) if few.any() else curve


def _curve(job: JobState, allowed: tuple[int, int] | None, limit: int) -> BatchCurve:
    """The same, however few devices it needs at least."""
    if job.scaling is None or allowed is None:
        rates = job.rate.rates(limit)
        return BatchCurve(rates / rates[0], np.zeros(limit, np.int64))
    if isinstance(job.scaling, Scalability):
        return job.scaling.best(*allowed, limit)
    return _asked(job.scaling, allowed, limit)


def _asked(scaling: Scaling, allowed: tuple[int, int], limit: int) -> BatchCurve:
    """The same of a scaling that tells one rate at a time; the baseline is the best rate on one device."""
    least, most = allowed
    batches = np.unique(np.linspace(least, most, min(TRIED, most - least + 1)).astype(np.int64))
    counts = range(1, limit + 1)
    rates = np.array([[scaling.rate(count, int(batch)) for count in counts] for batch in batches])
    alone = rates.max(axis=0) / np.arange(1, limit + 1)
    possible = alone[alone > 0]
    return _best(rates, batches, float(possible[0]) if len(possible) else 1.0)


def _best(rates: Floats, batches: Counts, single: float) -> BatchCurve:
    """Eq. 1 and 2 from the rates by batch and count; shape (batches, counts). Equal but for rounding is equal."""
    rate = rates.max(axis=0)
    first = (rates >= rate * (1 - _ROUNDING)).argmax(axis=0)
    factors = np.where(rate > 0, rate / single, -np.inf)
    return BatchCurve(factors, np.where(rate > 0, batches[first], 0))
