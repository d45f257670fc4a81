"""How soon a queue of jobs with ranges of batches ends, by the plans, and how soon any batches could end it.

Arrivals, jobs and devices are the paper's (Saxena et al., 2020, IV-A, F and G), and those of the queues that
`benchmarks.batches` rehearses. Nothing trains here.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bars import Bar, median_bar
from benchmarks.batch_queue import DEVICES, FIXED, MODES, RATES, STEP_SECONDS, QueuedJob, draw_queue, write_queue
from benchmarks.simulated.drawn_batch_jobs import BatchJobs, batch_trace
from benchmarks.simulated.profiled_machine import ProfiledMachine
from benchmarks.simulated.published_profiles import K_MAX, published_profiles
from fleet.scheduling.model.cluster import Cluster
from fleet.session.dry_run import make_plan
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import Trace
from fleet.spec import load
from fleet.spec.policies import policy

SEEDS = 10
MACHINES = 20
"""Of two devices each: theirs."""
HOUR = 3600.0
ELASTIC = {model: 1.0 for model, profile in published_profiles().items() if profile.limit > 1}
PATTERNS: Mapping[str, BatchJobs] = {
    "low (IV-A)": BatchJobs(4 * HOUR, K_MAX, "low", mix=ELASTIC),
    "high (IV-A)": BatchJobs(4 * HOUR, K_MAX, "high", mix=ELASTIC),
    "bursty, by the hour (IV-F)": BatchJobs(4 * HOUR, K_MAX, "bursty", period=HOUR, mix=ELASTIC),
    "bursty, very high (IV-G)": BatchJobs(12 * HOUR, 2 * MACHINES, "bursty", period=2 * HOUR),
}
"""The paper states all rates but the last ones, which are taken for all the devices can do, and a quarter of it."""
HIGH, QUEUED = "high (IV-A)", "bursty, very high (IV-G)"
SOONER, NEAR = 1.5, 1.05


class Times(NamedTuple):
    """The mean time from a job's arrival to its end, and that from the first arrival to the last end."""

    completion: float
    whole: float


class Planned(NamedTuple):
    """A queue by the plans: its jobs, its last arrival, the soonest end with any batches, and the times by mode."""

    jobs: int
    last: float
    soonest: float
    times: Mapping[str, Times]


def main(repetitions: int = 0) -> dict[str, Any]:
    """Plan `repetitions` queues of each kind.

    Returns:
        {"bars": [...], "tables": [...], "notes": []}.
    """
    seeds = range(repetitions or SEEDS)
    theirs = {name: [_simulated(spec, seed) for seed in seeds] for name, spec in PATTERNS.items()}
    alone = {
        f"{pattern.partition(' (')[0]}, {model} alone": [
            _simulated(_only(PATTERNS[pattern], model), seed) for seed in seeds
        ]
        for pattern in PATTERNS
        if pattern != QUEUED
        for model in ELASTIC
    }
    own = {
        f"{rate}, a step takes {1000 * step:g} ms besides": [_queue(arriving, step, seed) for seed in seeds]
        for rate, arriving in RATES.items()
        for step in (STEP_SECONDS, 0.0)
    }
    tables = [
        _table(f"planned on {2 * MACHINES} devices, min", {**theirs, **alone}, 1 / 60),
        _table(f"planned on {DEVICES} devices as rehearsed, s", own, 1.0),
    ]
    return {"bars": _bars(theirs), "tables": tables, "notes": []}


def planned_times(spec: Path, jobs: Sequence[QueuedJob]) -> Times:
    """What `fleet plan` says of a queue's spec."""
    overrides = (f"resources.trainers={DEVICES}", "resources.preprocessors=1")
    ends = {job.name: job.end for job in make_plan(load(spec, overrides), None).jobs}
    return Times(statistics.mean(ends[job.name] - job.arrival for job in jobs), max(ends.values()))


def soonest_end(jobs: Sequence[QueuedJob]) -> float:
    """The soonest end of a queue on `DEVICES` devices with any batches, in parts or at once."""
    fastest, work = [], []
    for job in jobs:
        rates = [way(batch) for batch in job.batches for way in (job.in_parts, job.at_once)]
        fastest.append(job.samples / max(max(each.values()) for each in rates))
        work.append(job.samples / max(rate / count for each in rates for count, rate in each.items()))
    return _soonest([job.arrival for job in jobs], fastest, work, DEVICES)


def _soonest(arrivals: Sequence[float], fastest: Sequence[float], work: Sequence[float], devices: int) -> float:
    """No order and no batches end the jobs sooner: a bound, and nobody says that it can be reached.

    A job ends no sooner than its arrival and its shortest time, and the jobs that come from some arrival on no sooner
    than all devices do their work where each device brings the most.

    Args:
        fastest: seconds of each job with the best batch on the best count.
        work: device-seconds of each job with the batch and the count of which a device brings the most.
    """
    at, order = np.array(arrivals), np.argsort(arrivals)
    still = np.cumsum(np.array(work)[order][::-1])[::-1]
    return float(max((at + np.array(fastest)).max(), (at[order] + still / devices).max()))


def _simulated(spec: BatchJobs, seed: int) -> Planned:
    """A queue of the paper's on its machines, on which moves cost nothing."""
    profiles = published_profiles()
    trace = batch_trace(spec, profiles, seed)
    times = {}
    for mode in MODES:
        machine = ProfiledMachine(Cluster((2,) * MACHINES), profiles)
        batch = {"random": "fixed"}.get(mode, mode)
        outcome = Simulation(trace, machine, policy("throughput", batch=batch)).run()
        times[mode] = Times(float(outcome.jct.mean()), float(outcome.makespan))
    return Planned(len(trace), float(trace.jobs.arrival.max()), _trace_bound(trace), times)


def _trace_bound(trace: Trace) -> float:
    profiles, fastest, work = published_profiles(), [], []
    for job in trace:
        profile = profiles[job.model]
        rates = profile.scaling.best(*profile.batches, profile.limit).factors * profile.scaling.single
        assert job.samples is not None, "batch_trace says how much each job trains"
        fastest.append(job.samples / rates.max())
        work.append(job.samples / (rates / np.arange(1, len(rates) + 1)).max())
    return _soonest(trace.jobs.arrival.tolist(), fastest, work, 2 * MACHINES)


def _only(spec: BatchJobs, model: str) -> BatchJobs:
    return BatchJobs(spec.seconds, spec.load, spec.arrivals, spec.low, spec.period, {model: 1.0})


def _queue(arriving: float, step: float, seed: int) -> Planned:
    """One of the queues that are rehearsed."""
    jobs = draw_queue(seed, arriving, step)
    with tempfile.TemporaryDirectory(prefix="fleet-batch-plans-") as name:
        times = {mode: planned_times(write_queue(Path(name), jobs, mode), jobs) for mode in MODES}
    print(f"arriving {arriving:g}, queue {seed}: {times}", file=sys.stderr, flush=True)
    return Planned(len(jobs), jobs[-1].arrival, soonest_end(jobs), times)


def _gains(queues: Sequence[Planned], what: str) -> list[float]:
    """How many times as long the best fixed batches take."""
    return [
        min(getattr(queue.times[mode], what) for mode in FIXED) / getattr(queue.times["variable"], what)
        for queue in queues
    ]


def _bars(theirs: Mapping[str, Sequence[Planned]]) -> list[Bar]:
    """What variable batches bring at the paper's rates, and that they leave next to nothing to any others."""
    completion = _gains(theirs[HIGH], "completion")
    name, sooner = f"completion time, {HIGH}, best fixed batches by variable", statistics.median(completion) >= SOONER
    bars = [median_bar(name, completion, f">= {SOONER}", sooner)]
    baseline = [queue.times["random"].whole / queue.times["variable"].whole for queue in theirs[QUEUED]]
    name, sooner = f"whole queue, {QUEUED}, random batches by variable", statistics.median(baseline) >= SOONER
    bars.append(median_bar(name, baseline, f">= {SOONER}", sooner))
    for pattern, queues in theirs.items():
        over = [queue.times["variable"].whole / queue.soonest for queue in queues]
        name, near = f"whole queue, {pattern}, variable batches by the soonest of any", max(over) <= NEAR
        bars.append(median_bar(name, over, f"<= {NEAR} each", near))
    return bars


def _table(title: str, queues: Mapping[str, Sequence[Planned]], unit: float) -> dict[str, Any]:
    """Medians over the queues; the gains with the least and the most."""
    rows = []
    for name, known in queues.items():
        possible = [min(queue.times[mode].whole for mode in FIXED) / queue.soonest for queue in known]
        gains = (_gains(known, "completion"), _gains(known, "whole"), possible)
        times = [
            round(unit * statistics.median(getattr(queue.times[mode], what) for queue in known), 1)
            for what in Times._fields
            for mode in MODES
        ]
        counted = [round(statistics.median(queue.jobs for queue in known))]
        ends = [
            round(unit * statistics.median(getattr(queue, end) for queue in known), 1) for end in ("last", "soonest")
        ]
        rows.append([name, *counted, *ends, *times, *map(_told, gains)])
    named = [f"{what}, {mode}" for what in ("completion", "whole queue") for mode in MODES]
    gained = ["best fixed / variable, completion", "the same, whole queue", "best fixed / soonest of any"]
    columns = ["jobs come", "jobs", "last arrival", "soonest end of any batches", *named, *gained]
    return {"title": f"{title}, medians of {len(next(iter(queues.values())))}", "columns": columns, "rows": rows}


def _told(gains: Sequence[float]) -> str:
    return f"{statistics.median(gains):.2f} ({min(gains):.2f} to {max(gains):.2f})"
