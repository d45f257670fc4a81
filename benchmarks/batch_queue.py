"""A queue of jobs with ranges of batches, rehearsed with variable and with fixed ones (Saxena et al., 2020, IV).

Jobs, batches, and how often they come are the paper's (see `benchmarks.simulated.published_profiles`), on a fifth of
its devices and `FASTER` times as fast; a sample of the rehearsal stands for some of theirs, so that its steps are long
enough to be waited for. Where two cores carry all ranks, more ranks would wait for each other and not for the plan.

A fixed batch is as theirs: a job waits for as many devices as hold it. fleet needs no such number, as a device works on
one virtual worker's part of the batch after the other, and so do jobs with variable batches.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.simulated.published_profiles import BatchProfile, published_profiles

DEVICES, WORKERS, JOBS = 8, 8, 8
HIGH, QUEUED = "high", "very high"
RATES = {HIGH: DEVICES / 4, QUEUED: float(DEVICES)}
"""Devices that the work which comes would keep busy. Their high rate, k_max x lambda, is 10 for 40 devices (IV-A). That
of the bursts with which they measure queues is "a very high" one (IV-G); their Figure 7 has 750 jobs in 12 hours, which
is about all that the devices can do in the bursts.
"""
FASTER, STANDS_FOR = 240.0, 240.0  # than theirs; samples of theirs
SAMPLES = 1200
"""Of an epoch."""
MODES = ("variable", "random", "max", "min")
FIXED = ("random", "max", "min")
"""The paper's."""
STEP_SECONDS = 0.004
"""What each step takes besides, however few its samples: ranks that share two cores do none much faster."""
POINTS = 9
"""Batches of a range that are measured, evenly apart."""


@dataclass(frozen=True)
class QueuedJob:
    """One job: what it is, when it comes, and the batch that its user would have chosen (their Random-BS).

    Attributes:
        step: seconds that each step takes besides, however few its samples.
    """

    name: str
    model: str
    arrival: float
    batch: int
    step: float = STEP_SECONDS

    @property
    def range(self) -> tuple[int, int]:
        """Its batches; whole numbers of a worker's samples, none larger than an epoch."""
        least, most = _profiles()[self.model].batches
        return whole(least), whole(min(most, SAMPLES))

    @property
    def epochs(self) -> int:
        """As many as its user's job has work for."""
        profile = _profiles()[self.model]
        return max(1, round(profile.seconds * profile.scaling.single / STANDS_FOR / SAMPLES))

    @property
    def samples(self) -> int:
        """Of all its epochs."""
        return self.epochs * SAMPLES

    @property
    def batches(self) -> list[int]:
        """Those of its range that are measured."""
        return sorted({whole(batch) for batch in np.linspace(*self.range, POINTS)})

    def in_parts(self, batch: int) -> dict[int, float]:
        """r(k), samples/s, with that batch, where each device turns its virtual workers."""
        scaling = _profiles()[self.model].scaling
        size = batch / WORKERS
        known = np.interp(min(size, scaling.fits), list(scaling.processing), list(scaling.processing.values()))
        turn = float(known) * max(1.0, size / scaling.fits)  # what does not fit is cut into parts
        return self._rates(batch, {count: -(-WORKERS // count) * turn for count in range(1, WORKERS + 1)})

    def at_once(self, batch: int) -> dict[int, float]:
        """The same where each device has its part of the batch at once, from `least` devices on."""
        scaling = _profiles()[self.model].scaling
        known, fits = list(scaling.processing), scaling.fits
        parts = {count: batch / count for count in range(1, WORKERS + 1)}
        turns = {
            count: np.interp(min(part, fits), known, list(scaling.processing.values())) for count, part in parts.items()
        }
        return self._rates(batch, {count: float(turns[count]) * max(1.0, part / fits) for count, part in parts.items()})

    def least(self, batch: int) -> int:
        """Devices that hold that batch."""
        return -(-batch // _profiles()[self.model].scaling.fits)

    def _rates(self, batch: int, seconds: Mapping[int, float]) -> dict[int, float]:
        """By the seconds that so many devices compute a step of theirs."""
        scaling = _profiles()[self.model].scaling
        summing = scaling.reducing.seconds(scaling.weights)
        waits = {count: (each + float(summing[count - 1])) * STANDS_FOR / FASTER for count, each in seconds.items()}
        return {count: batch / (each + self.step) for count, each in waits.items()}


def draw_queue(seed: int, arriving: float, step: float = STEP_SECONDS) -> list[QueuedJob]:
    """Jobs whose batch may change; seed path ("batch-queue", seed).

    Args:
        arriving: devices that the work which comes would keep busy, see `RATES`.
        step: seconds that each step takes besides.
    """
    draw = random.Random(f"batch-queue/{seed}")
    models = [model for model, profile in _profiles().items() if profile.limit > 1]
    mean = sum(_profiles()[model].seconds for model in models) / len(models) / FASTER
    jobs, arrival = [], 0.0
    for number in range(JOBS):
        model = draw.choice(models)
        job = QueuedJob(f"job-{number:02}", model, round(arrival, 3), 0, step)
        jobs.append(replace(job, batch=whole(draw.randint(*job.range))))
        arrival += draw.expovariate(arriving / mean)
    return jobs


def write_queue(folder: Path, jobs: list[QueuedJob], mode: str) -> Path:
    """Write the spec of a rehearsal; return its path."""
    spec: dict[str, Any] = {
        "name": f"queue-{mode}",
        "data": {"clouds": {"train": {"source": "benchmarks.clouds:Clouds", "arguments": {"count": SAMPLES}}}},
        "defaults": {
            "data": "clouds",
            "model": {"name": "trainers.zoo:MLP", "arguments": {"inputs": 16, "widths": [8], "classes": 3}},
            "optimizer": {"name": "SGD", "arguments": {"lr": 0.01}},
            "virtual_workers": WORKERS,
        },
        "policy": {"name": "throughput", "restart": 0.0},
        "checkpoints": {"every": 1000},
        "jobs": [_entry(job, mode) for job in jobs],
        "rehearse": {
            "rates": {job.name: _rates(job, mode) for job in jobs},
            "batches": {job.name: _listed(job) for job in jobs} if mode == "variable" else {},
        },
    }
    path = folder / f"{spec['name']}.yaml"
    path.write_text(json.dumps(spec))
    return path


def whole(batch: float) -> int:
    """The nearest batch of which each worker has as many samples."""
    return max(1, round(batch / WORKERS)) * WORKERS


@cache
def _profiles() -> Mapping[str, BatchProfile]:
    return published_profiles()


def _own(job: QueuedJob, mode: str) -> int:
    return {"max": job.range[1], "min": job.range[0]}.get(mode, job.batch)


def _rates(job: QueuedJob, mode: str) -> dict[int, float]:
    batch = _own(job, mode)
    return job.at_once(batch) if mode in FIXED else job.in_parts(batch)


def _entry(job: QueuedJob, mode: str) -> dict[str, Any]:
    stop = {"epochs": job.epochs}
    entry = {"name": job.name, "arrival": job.arrival, "batch_size": _own(job, mode) // WORKERS, "stop": stop}
    if mode in FIXED:
        entry["minimum_devices"] = job.least(_own(job, mode))
    return {**entry, "batch": {"range": list(job.range), "learning_rate": "keep"}} if mode == "variable" else entry


def _listed(job: QueuedJob) -> dict[int, float]:
    return {batch: job.in_parts(batch)[1] for batch in job.batches}
