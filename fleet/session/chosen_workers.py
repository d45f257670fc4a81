"""`virtual_workers: auto`: chosen once, before the run first starts, and the job's from then on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fleet.session.more_workers import fewest_workers, widened
from fleet.session.prediction import PredictionInput, prepare
from fleet.session.recorded_choices import recorded_numbers
from fleet.spec import EnsembleSpec


def with_chosen_workers(spec: EnsembleSpec, out: Path, shape: tuple[int, ...]) -> EnsembleSpec:
    """The spec with a number in place of each `virtual_workers: auto`.

    A run that has begun keeps what it began with; otherwise see `fewest_workers`.

    Args:
        out: the run directory.
        shape: trainers of each node.

    Raises:
        SpecError, SourceError, TransformError, ClusterError: what a run would refuse.
    """
    if not any(job.auto_workers for job in spec.jobs):
        return spec
    numbers = recorded_numbers(out, "virtual_workers")
    known = spec.with_jobs(
        tuple(
            job.with_workers(numbers[job.name]) if job.auto_workers and job.name in numbers else job
            for job in spec.jobs
        )
    )
    if not any(job.auto_workers for job in known.jobs):
        return known
    chosen = _chosen(prepare(_on_any_number(known), shape))
    jobs = tuple(job.with_workers(chosen[job.name]) if job.auto_workers else job for job in known.jobs)
    return spec.with_jobs(jobs)


def _on_any_number(spec: EnsembleSpec) -> EnsembleSpec:
    """Without a wish for a number of trainers: one virtual worker that stands in for several would be too few."""
    return spec.model_copy(update={"resources": spec.resources.model_copy(update={"trainers": None})})


def _chosen(ready: PredictionInput) -> Mapping[str, int]:
    """Virtual workers of the jobs that ask for a choice: no device is left that none of them could ever use."""
    expected, devices = ready.expected, len(ready.prediction.cluster.trainers)
    open_ = {name for name, one in expected.items() if one.known.job.auto_workers}
    widest = widened(expected, open_, devices)
    chosen, _ = fewest_workers(ready.prediction, expected, open_, ready.prediction.of(widest))
    if sum(chosen.values()) < devices:
        return {name: one.known.job.virtual_workers for name, one in widest.items()}
    return chosen
