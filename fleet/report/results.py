"""What became of each network, and which is the best."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.journal.events import Failed
from fleet.journal.metric_order import Undeclared
from fleet.journal.state import JobState
from fleet.report.history import RunHistory


@dataclass(frozen=True)
class JobResult:
    """One network; `status` is done, failed, running (its last word was that it trains), stopped, paused or pending."""

    job: JobState
    status: str
    epochs: int
    metrics: Mapping[str, float]
    device_seconds: float
    why: str
    checkpoint: str
    failure: Failed | None


@dataclass(frozen=True)
class BestNetwork:
    """The best network by one metric."""

    job: str
    metric: str
    value: float


def job_results(history: RunHistory) -> tuple[JobResult, ...]:
    """One result for each job, in the order of the spec."""
    seconds: dict[str, float] = defaultdict(float)
    for span in history.spans:
        seconds[span.job] += span.seconds
    return tuple(_result(history, job, seconds[job.name]) for job in history.jobs.values())


def best_network(history: RunHistory) -> BestNetwork | None:
    """The best network, as `fleet best` has it; None: no network has a finite value. Failed ones are out."""
    rows = [(each.job, each.metrics) for each in sorted(history.epochs, key=lambda each: each.epoch)]
    told = {job for job, _ in rows}
    rows += [(job.name, job.result) for job in history.jobs.values() if job.name not in told]
    values: dict[str, list[float | None]] = {}
    metric = history.comparing.metric(dict.fromkeys(name for _, metrics in rows for name in metrics))
    for job, metrics in rows:
        value = metrics.get(metric, math.nan)
        values.setdefault(job, []).append(value if math.isfinite(value) else None)
    try:
        order = history.comparing.order(metric)
    except Undeclared:
        return None
    found = {job: best for job in history.jobs if (best := order.value(values.get(job, ()))) is not None}
    usable = [job for job in found if history.jobs[job].status != "failed"]
    ranked = order.ranked(usable, lambda job: found[job][0])
    return BestNetwork(ranked[0], metric, found[ranked[0]][0]) if ranked else None


def metric_names(results: tuple[JobResult, ...]) -> tuple[str, ...]:
    """Every metric that any job has: accuracy first, then the losses, then the others as they came."""
    names = dict.fromkeys(name for result in results for name in result.metrics)
    first = [name for name in ("accuracy", "test_loss", "loss") if name in names]
    return (*first, *(name for name in names if name not in first))


def _result(history: RunHistory, job: JobState, device_seconds: float) -> JobResult:
    epochs = history.epochs_of(job.name)
    return JobResult(
        job=job,
        status=job.status,
        epochs=len(epochs),
        metrics={**(epochs[-1].metrics if epochs else {}), **job.result},
        device_seconds=device_seconds,
        why=job.why,
        checkpoint=job.checkpoint or _last_checkpoint(history, job.name),
        failure=_failure(history, job.name) if job.status == "failed" else None,
    )


def _last_checkpoint(history: RunHistory, job: str) -> str:
    return next((file.path for file in reversed(history.checkpoints) if file.job == job), "")


def _failure(history: RunHistory, job: str) -> Failed | None:
    return next((failure for failure in reversed(history.failures) if failure.job == job), None)
