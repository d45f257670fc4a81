"""The jobs of an ensemble's spec, as a trace: what a run of it would have to train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.traces.columns import JobColumns
from fleet.simulator.traces.job import TraceJob
from fleet.simulator.traces.trace import Trace
from fleet.spec import Job
from fleet.spec.values import unix_seconds

FORMAT = "spec"


@dataclass(frozen=True)
class KnownJob:
    """A job of a spec, and what its data and its profile tell.

    Attributes:
        samples: samples of an epoch.
        data: the key of its data set.
        curve: its rate curve, samples/s.
        mixed_kinds: whether its devices may be of different kinds.
    """

    job: Job
    samples: int
    data: str
    curve: RateCurve
    mixed_kinds: bool = False


def spec_trace(known: Mapping[str, KnownJob], start: float) -> Trace:
    """The jobs by arrival. Their times count from the begin of the run, whenever the first of them arrives.

    Args:
        known: by name.
        start: when the run begins, seconds since 1970: deadlines may be times of day.
    """
    columns = JobColumns.from_jobs(_trace_job(job, start) for job in known.values())
    ordered = columns.take(np.argsort(columns.arrival, kind="stable"))
    return Trace(ordered, format=FORMAT, curves={name: one.curve for name, one in known.items()})


def _trace_job(known: KnownJob, start: float) -> TraceJob:
    job, level = known.job, known.job.service_level
    return TraceJob(
        job.name,
        job.arrival,
        job.virtual_workers,
        model=job.name,
        batch_size=job.global_batch,
        samples=float(job.stop.epochs * known.samples),
        limit=job.virtual_workers,
        minimum_devices=job.minimum_devices,
        workers=job.virtual_workers,
        epochs=float(job.stop.epochs),
        deadline=_due(job, start),
        priority=job.priority,
        mixed=known.mixed_kinds,
        soft=job.soft,
        tenant=job.user or "",
        service_devices=None if level is None else level.devices,
        service_window=None if level is None else level.window,
        stream=f"{known.data}/{job.order_seed}",
    )


def _due(job: Job, start: float) -> float | None:
    """Seconds after the run's begin; a deadline before its job's arrival is as good as one at it."""
    if isinstance(job.deadline, str):
        return max(job.arrival, unix_seconds(job.deadline) - start)
    return None if job.deadline is None else job.arrival + job.deadline
