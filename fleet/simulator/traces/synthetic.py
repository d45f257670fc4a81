"""Jobs that are drawn: whole traces, and models for the jobs of a trace that names none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal, Protocol

import numpy as np

from fleet.scheduling.model.arrays import Counts, Flags, Floats
from fleet.simulator.traces.trace import JobColumns, Trace

Mix = Mapping[tuple[str, int], float]
"""(model, global batch size) -> weight."""

_WORD = 2**64


class MeasuredRates(Protocol):
    """The part of a table of rates that draws need: `fleet.simulator.machines.rate_tables.RateTable`."""

    @property
    def models(self) -> tuple[str, ...]: ...

    def batches(self, model: str) -> tuple[int, ...]: ...

    def rates(self, model: str, batch: int, limit: int) -> Floats: ...

    def peak(self, model: str, batch: int) -> int: ...


def generator(seed: int, name: str) -> np.random.Generator:
    """The generator of the path (seed, name): Philox, keyed by both."""
    word = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
    return np.random.Generator(np.random.Philox(key=np.array([seed % _WORD, word], dtype=np.uint64)))


def uniform(seed: int, name: str, count: int) -> Floats:
    """Numbers in [0, 1), float64 of shape (count,); fewer are the first of more."""
    return generator(seed, name).random(count)


def chosen(uniform: Floats, weights: Sequence[float]) -> Counts:
    """For each number in [0, 1) the position of a weight, as often as its share says."""
    shares = np.cumsum(weights) / math.fsum(weights)
    last = int(np.flatnonzero(np.asarray(weights) > 0)[-1])
    return np.minimum(np.searchsorted(shares, uniform, side="right"), last).astype(np.int64)


def models_of(mix: Mix | None, rates: MeasuredRates, seed: int, count: int) -> tuple[list[tuple[str, int]], Counts]:
    """The models and batch sizes to choose from, and for each of `count` jobs the position of its own.

    Without a mix all that the table holds, alike.

    Raises:
        ValueError: no weight is above 0, or one is below.
    """
    if mix is None:
        mix = {(model, batch): 1.0 for model in rates.models for batch in rates.batches(model)}
    if not (min(mix.values(), default=0) >= 0 and 0 < sum(mix.values()) < math.inf):
        raise ValueError(f"the weights are {dict(mix)}; they must be 0 or more each, and not all 0")
    return list(mix), chosen(uniform(seed, "model", count), list(mix.values()))


FORMAT = "synthetic"
_MOST_JOBS, _MOST_DEVICES = 2_000_000, 1_000_000
SIZES: Mapping[int, float] = {1: 0.83, 2: 0.03, 4: 0.03, 8: 0.10, 16: 0.01}
"""Devices and their share of the jobs, as in the trace generator of pkusys/ElasticFlow."""


@dataclass(frozen=True)
class Synthetic:
    """How jobs are drawn.

    Attributes:
        jobs: how many.
        gap: mean seconds between two arrivals.
        arrivals: "poisson"; or "bursty": bursts of geometrically many jobs, whose starts are Poisson.
        burst: mean jobs of a burst.
        burst_gap: mean seconds between two jobs of a burst, as a part of `gap`.
        duration: median seconds of training.
        spread: standard deviation of the logarithm of the duration.
        sizes: devices -> weight; a job gets no more than its model's measured peak.
        mix: (model, global batch size) -> weight; None: all that the table holds, alike.
        tightness: bounds of lambda, which is uniform; the deadline is the arrival + lambda * duration
            (ElasticFlow, ASPLOS'23, 6.1: 0.5 to 1.5).
        with_deadline: part of the jobs that have one.

    Raises:
        ValueError: a number that makes no trace.
    """

    jobs: int
    gap: float
    arrivals: Literal["poisson", "bursty"] = "poisson"
    burst: float = 10.0
    burst_gap: float = 0.1
    duration: float = 3600.0
    spread: float = 1.5
    sizes: Mapping[int, float] = field(default_factory=lambda: dict(SIZES))
    mix: Mapping[tuple[str, int], float] | None = None
    tightness: tuple[float, float] = (0.5, 1.5)
    with_deadline: float = 1.0

    def __post_init__(self) -> None:
        _check(1 <= self.jobs <= _MOST_JOBS, "jobs", self.jobs, f"between 1 and {_MOST_JOBS:,}")
        for name in ("gap", "duration"):
            value = getattr(self, name)
            _check(math.isfinite(value) and value > 0, name, value, "above 0, and finite")
        _check(self.arrivals in ("poisson", "bursty"), "arrivals", self.arrivals, "'poisson' or 'bursty'")
        _check(math.isfinite(self.burst) and self.burst >= 1, "burst", self.burst, "1 or more")
        _check(0 <= self.burst_gap <= 1, "burst_gap", self.burst_gap, "between 0 and 1")
        _check(0 <= self.spread < 20, "spread", self.spread, "0 or more, and below 20")
        _check(0 <= self.tightness[0] <= self.tightness[1] < math.inf, "tightness", self.tightness, "0 <= low <= high")
        _check(0 <= self.with_deadline <= 1, "with_deadline", self.with_deadline, "between 0 and 1")
        right = all(1 <= size <= _MOST_DEVICES for size in self.sizes)
        _check(right, "sizes", dict(self.sizes), f"of 1 device or more each, and {_MOST_DEVICES:,} at most")
        for weights in (self.sizes, {"": 1.0} if self.mix is None else self.mix):
            right = min(weights.values(), default=0) >= 0 and 0 < sum(weights.values()) < math.inf
            _check(right, "weights", dict(weights), "0 or more each, and not all 0")


def synthetic_trace(spec: Synthetic, rates: MeasuredRates, seed: int = 0) -> Trace:
    """Draw a trace. The same arguments give the same jobs; a longer trace begins with the jobs of a shorter one.

    Every quantity has a generator of its own (Philox, keyed by the seed and its name), so that changing how one is
    drawn leaves the others as they are. `work` is whole steps, at least one, and `duration` what they take.

    Raises:
        UnknownRate: `mix` names a model or a batch size that the table does not hold.
    """
    keys, which = models_of(spec.mix, rates, seed, spec.jobs)
    sizes = np.array(list(spec.sizes), dtype=np.int64)
    asked = sizes[chosen(uniform(seed, "devices", spec.jobs), list(spec.sizes.values()))]
    devices = np.minimum(asked, np.array([rates.peak(*key) for key in keys])[which])
    rate = _grid(keys, rates, int(devices.max()))[which, devices - 1]
    drawn = spec.duration * np.exp(spec.spread * generator(seed, "duration").standard_normal(spec.jobs))
    work = np.maximum(1.0, np.rint(drawn * rate))
    arrival = _arrivals(spec, seed)
    batch = np.array([batch for _, batch in keys], dtype=np.float64)[which]
    models = [model for model, _ in keys]
    columns = JobColumns.of(
        name=[f"job-{i}" for i in range(spec.jobs)],
        arrival=arrival,
        devices=devices,
        model=[models[i] for i in which.tolist()],
        batch_size=batch,
        work=work,
        samples=work * batch,
        duration=work / rate,
        deadline=_deadlines(spec, seed, arrival, work / rate),
    )
    return Trace(columns, format=FORMAT)


def _check(right: bool, name: str, value: object, rule: str) -> None:
    if not right:
        raise ValueError(f"{name} is {value}; it must be {rule}")


def _grid(keys: Sequence[tuple[str, int]], rates: MeasuredRates, limit: int) -> Floats:
    """Steps/s by (model and batch size, devices)."""
    return np.stack([rates.rates(model, batch, limit) for model, batch in keys])


def _arrivals(spec: Synthetic, seed: int) -> Floats:
    """Seconds, the first 0."""
    gaps = generator(seed, "arrival").standard_exponential(spec.jobs)
    if spec.arrivals == "poisson":
        gaps *= spec.gap
    else:
        begins: Flags = uniform(seed, "burst", spec.jobs) * spec.burst < 1
        inside = spec.burst_gap * spec.gap
        between = spec.gap * spec.burst - (spec.burst - 1) * inside  # so that the mean over all gaps is `gap`
        gaps *= np.where(begins, between, inside)
    gaps[0] = 0.0
    return np.cumsum(gaps)


def _deadlines(spec: Synthetic, seed: int, arrival: Floats, duration: Floats) -> Floats:
    low, high = spec.tightness
    tightness = low + (high - low) * uniform(seed, "tightness", spec.jobs)
    has = uniform(seed, "with_deadline", spec.jobs) < spec.with_deadline
    return np.where(has, arrival + tightness * duration, np.nan)


def with_models(
    trace: Trace,
    rates: MeasuredRates,
    seed: int = 0,
    mix: Mix | None = None,
    tightness: tuple[float, float] | None = None,
) -> Trace:
    """The trace, every job with a model and a batch size drawn from the table (ElasticFlow, ASPLOS'23, 6.1).

    `work` is what the job does in its duration on its devices, in whole steps and at least one; the duration stays.

    Args:
        mix: weights of the draws; None: all entries of the table alike.
        tightness: bounds of lambda, uniform; deadlines are the arrival + lambda * duration. None: as they are.

    Raises:
        UnknownRate: `mix` names a model or a batch size that the table does not hold.
        ValueError: a job has no duration.
    """
    jobs = trace.jobs
    if np.isnan(jobs.duration).any():
        name = jobs.name[int(np.flatnonzero(np.isnan(jobs.duration))[0])]
        raise ValueError(f"job {name} has no duration; only with one does it follow how much it did")
    keys, which = models_of(mix, rates, seed, len(jobs))
    longest = int(jobs.devices.max())
    grid = np.stack([rates.rates(model, batch, longest) for model, batch in keys])
    work = np.maximum(1.0, np.rint(jobs.duration * grid[which, jobs.devices - 1]))
    batch_size = np.array([batch for _, batch in keys], dtype=np.float64)[which]
    columns = {name: getattr(jobs, name) for name in jobs.__dataclass_fields__}
    columns |= {"batch_size": batch_size, "work": work, "samples": work * batch_size}
    columns["model"] = [keys[i][0] for i in which.tolist()]
    if tightness is not None:
        low, high = tightness
        columns["deadline"] = (
            jobs.arrival + (low + (high - low) * uniform(seed, "tightness", len(jobs))) * jobs.duration
        )
    return replace(trace, jobs=JobColumns.of(**columns))
