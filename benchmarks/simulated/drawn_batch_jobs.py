"""Traces of jobs with a range of batch sizes, drawn at random (Saxena et al., 2020, IV-A)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.policies.throughput import Scalability
from fleet.simulator.traces.synthetic import chosen, generator, uniform
from fleet.simulator.traces.trace import JobColumns, Trace

FORMAT = "batch-jobs"


class Profile(Protocol):
    """What is asked of a kind of job: `benchmarks.simulated.published_profiles.BatchProfile`."""

    @property
    def batches(self) -> tuple[int, int]: ...

    @property
    def scaling(self) -> Scalability: ...

    @property
    def seconds(self) -> float: ...


@dataclass(frozen=True)
class BatchJobs:
    """How jobs are drawn.

    Jobs come at a rate of `load` x lambda, lambda being how many a second one device gets done (their "base rate").

    Attributes:
        seconds: in which jobs arrive.
        load: devices that the work which arrives would keep busy, at times of a high rate.
        arrivals: "high"; "low"; or "bursty": high and low in turns.
        low: the low rate, as a part of the high one.
        period: seconds of each turn.
        mix: model -> weight; None: all alike.

    Raises:
        ValueError: a number that makes no trace.
    """

    seconds: float
    load: float
    arrivals: Literal["high", "low", "bursty"] = "bursty"
    low: float = 0.25
    period: float = 7200.0
    mix: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "load", "period"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}; it must be above 0, and finite")
        if self.arrivals not in ("high", "low", "bursty"):
            raise ValueError(f"arrivals is {self.arrivals!r}; it must be 'high', 'low' or 'bursty'")
        if not 0 < self.low <= 1:
            raise ValueError(f"low is {self.low}; it must be above 0 and at most 1")
        weights = {"": 1.0} if self.mix is None else self.mix
        if not (min(weights.values(), default=0) >= 0 and 0 < sum(weights.values()) < math.inf):
            raise ValueError(f"the weights are {dict(weights)}; they must be 0 or more each, and not all 0")


def batch_trace(spec: BatchJobs, profiles: Mapping[str, Profile], seed: int = 0) -> Trace:
    """Draw a trace. The same arguments give the same jobs.

    The batch of a job is uniform in its range (their Random-BS). `samples` are what it trains in the time of its
    profile on one device; `devices` those on which its batch just fits, and `duration` the time on them.

    Args:
        profiles: by model.

    Raises:
        ValueError: `mix` names a model without profile, or chance drew no job at all.
    """
    mix = dict.fromkeys(profiles, 1.0) if spec.mix is None else spec.mix
    missing = [model for model in mix if model not in profiles]
    if missing:
        raise ValueError(f"mix names {missing[0]!r}, of which there is no profile; known: {', '.join(profiles)}")
    known = [profiles[model] for model in mix]
    weights = np.array(list(mix.values()))
    mean = float(weights @ [profile.seconds for profile in known] / weights.sum())
    arrival = _arrivals(spec, spec.load / mean, seed)
    if not len(arrival):
        raise ValueError(f"no job came in {spec.seconds} s at this load and seed; draw a longer trace")
    which = chosen(uniform(seed, "model", len(arrival)), list(mix.values()))
    lows, highs = (np.array([profile.batches[end] for profile in known])[which] for end in (0, 1))
    batch = np.floor(lows + uniform(seed, "batch", len(arrival)) * (highs - lows + 1))
    devices = np.ceil(batch / np.array([profile.scaling.fits for profile in known])[which]).astype(np.int64)
    samples = np.array([profile.seconds * profile.scaling.single for profile in known])[which]
    rate = [known[i].scaling.rate(int(k), int(b)) for i, k, b in zip(which, devices, batch)]
    models = list(mix)
    columns = JobColumns.of(
        name=[f"job-{i}" for i in range(len(arrival))],
        arrival=arrival,
        devices=devices,
        model=[models[i] for i in which],
        batch_size=batch,
        work=samples / batch,
        samples=samples,
        duration=samples / np.array(rate),
    )
    return Trace.of(columns, format=FORMAT)


def _arrivals(spec: BatchJobs, high: float, seed: int) -> Floats:
    """Seconds of a Poisson process whose rate, `high` or a part of it, changes at whole periods."""
    turns = math.ceil(spec.seconds / spec.period)
    parts = {"high": [1.0], "low": [spec.low], "bursty": [1.0, spec.low]}[spec.arrivals]
    ends = np.minimum(np.arange(turns + 1) * spec.period, spec.seconds)
    expected = np.append(0.0, np.cumsum(np.diff(ends) * high * np.resize(parts, turns)))
    count = math.ceil(expected[-1] + 10 * math.sqrt(expected[-1]) + 10)
    gaps = generator(seed, "arrival").standard_exponential(count)
    jobs = np.cumsum(gaps)
    return np.interp(jobs[jobs < expected[-1]], expected, ends)
