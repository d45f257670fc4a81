"""`virtual_workers: auto`: chosen once, before the run first starts, and the job's from then on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleet.journal.directory import RunDirectory
from fleet.scheduling.model.rates import RateCurve
from fleet.session.prediction import ExpectedJob, PredictedRun, Prediction, PredictionInput, prepare
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


WORTH_TELLING = 0.05
"""How much sooner the run must end, as part of its time."""
_USEFUL = 0.02
"""What a plan may lose against the one with most virtual workers, to need fewer."""


@dataclass(frozen=True)
class MoreWorkers:
    """Virtual workers with which the run would end sooner.

    Attributes:
        workers: job -> virtual workers, of the jobs that would have more.
        seconds: from the run's begin until the last job is done, then.
    """

    workers: Mapping[str, int]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"virtual_workers": dict(self.workers), "predicted_seconds": self.seconds}

    def told(self, seconds: float) -> str:
        """A sentence for people; seconds: what the run takes as it is."""
        wanted = ", ".join(f"{job}: {count}" for job, count in self.workers.items())
        return (
            f"virtual_workers hold this plan back: it would end at {self.seconds:.0f} s, not {seconds:.0f} s, with "
            f"{wanted}. A job's batch is virtual_workers x batch_size: lower batch_size by as much to keep it"
        )


def more_workers(prediction: Prediction, expected: Mapping[str, ExpectedJob], told: PredictedRun) -> MoreWorkers | None:
    """Find the fewest virtual workers that make the run shorter by as much as more would; None: not worth telling.

    Args:
        expected: the jobs as they are. One whose batch a policy chooses keeps its virtual workers.
        told: what their run is.
    """
    free = {name for name, one in expected.items() if one.known.job.batches is None}
    devices = len(prediction.cluster.trainers)
    if all(_widened(expected[name], devices) is expected[name] for name in free):
        return None
    widest = prediction.of(widened(expected, free, devices))
    if not widest.seconds < (1 - WORTH_TELLING) * told.seconds:
        return None
    wanted, run = fewest_workers(prediction, expected, free, widest)
    if not run.seconds < (1 - WORTH_TELLING) * told.seconds:
        return None
    return MoreWorkers({name: n for name, n in wanted.items() if n > _workers(expected[name])}, run.seconds)


def fewest_workers(
    prediction: Prediction, expected: Mapping[str, ExpectedJob], free: Collection[str], widest: PredictedRun
) -> tuple[dict[str, int], PredictedRun]:
    """Find few virtual workers with which the run takes hardly longer than with most, and that run.

    Args:
        free: the jobs that may have more virtual workers than they have.
        widest: the run in which these have as many as there are devices.
    """
    useful, devices = _smallest_useful(prediction, expected, free, widest), len(prediction.cluster.trainers)
    for held in (_longest, _most):  # one who is alone at the end could use all devices, for a moment
        wanted = {name: _workers(one) for name, one in expected.items()}
        for name in free:
            count = held(useful, name) or _workers(_widened(expected[name], devices))  # it never trains
            wanted[name] = max(wanted[name], count)
        run = prediction.of({name: with_workers(one, wanted[name]) for name, one in expected.items()})
        if run.seconds <= (1 + _USEFUL) * widest.seconds:
            break
    return wanted, run


def _smallest_useful(
    prediction: Prediction, expected: Mapping[str, ExpectedJob], free: Collection[str], widest: PredictedRun
) -> PredictedRun:
    """The run with as few virtual workers a job, by powers of two, as take hardly longer than the widest."""
    most = 1
    while most < len(prediction.cluster.trainers) and math.isfinite(widest.seconds):
        tried = prediction.of(widened(expected, free, most))
        if tried.seconds <= (1 + _USEFUL) * widest.seconds:
            return tried
        most *= 2
    return widest


def widened(expected: Mapping[str, ExpectedJob], free: Collection[str], most: int) -> dict[str, ExpectedJob]:
    """The jobs; of those that are free, each with `most` virtual workers, or its own if these are more."""
    return {name: _widened(one, most) if name in free else one for name, one in expected.items()}


def _widened(one: ExpectedJob, most: int) -> ExpectedJob:
    """A step takes no more samples than there are."""
    return with_workers(one, max(_workers(one), min(most, one.known.samples // one.known.job.batch_size)))


def with_workers(one: ExpectedJob, workers: int) -> ExpectedJob:
    """The job with so many; its rates on more devices than measured follow Eq. 5 of FLEET, MLSys'20."""
    if workers == _workers(one):
        return one
    known, kinds = one.known, one.by_kind
    job = known.job.with_workers(workers)
    if kinds is not None:
        wider = {kind: _wider(each, workers) for kind, each in kinds.curves.items()}
        kinds = replace(kinds, workers=workers, curves=wider)
    return replace(one, known=replace(known, job=job, curve=_wider(known.curve, workers)), by_kind=kinds)


def _wider(curve: RateCurve, workers: int) -> RateCurve:
    return RateCurve(curve.measured, curve.per_node, workers=workers)


def _workers(one: ExpectedJob) -> int:
    return one.known.job.virtual_workers


def _most(run: PredictedRun, job: str) -> int:
    """The most devices that the job ever holds."""
    return max((len(one.allocation.get(job, ())) for one in run.rounds), default=0)


def _longest(run: PredictedRun, job: str) -> int:
    """The number of devices that the job holds for the longest time; 0: it never trains."""
    seconds = defaultdict[int, float](float)
    for one in run.rounds:
        seconds[len(one.allocation.get(job, ()))] += one.end - one.start
    return max((count for count in seconds if count), key=lambda count: (seconds[count], -count), default=0)


def recorded_numbers(out: Path, key: str) -> dict[str, int]:
    """Job -> the number that a run which has begun in this directory has for a key, where it has one."""
    jobs = _kept(out).get("jobs", {})
    return {name: values[key] for name, values in jobs.items() if type(values.get(key)) is int}


def _kept(out: Path) -> dict[str, Any]:
    """What the run that has begun in this directory wrote down of its spec; nothing, if none has."""
    directory = RunDirectory(out)
    begun = directory.spec.exists() and directory.journal.exists()
    return directory.read_spec() if begun else {}


def with_known_batches(spec: EnsembleSpec, out: Path) -> EnsembleSpec:
    """The spec with a number in place of each `batch_size: largest` for which the run in `out` has found one."""
    if not any(job.largest_batch for job in spec.jobs):
        return spec
    sizes = recorded_numbers(out, "batch_size")
    return spec.with_jobs(
        tuple(
            job.with_batch_size(sizes[job.name]) if job.largest_batch and job.name in sizes else job
            for job in spec.jobs
        )
    )


def with_known_rule(spec: EnsembleSpec, out: Path) -> EnsembleSpec:
    """The spec whose search halves as that of the run in `out`, which was begun before there was a `confidence`."""
    if spec.search is None or not spec.search.stopping.is_confident:
        return spec
    kept, stopping = _kept(out).get("search"), spec.search.stopping
    if not kept or "confidence" in kept["stopping"] or "confidence" in stopping.model_fields_set:
        return spec
    search = spec.search.model_copy(update={"stopping": stopping.model_copy(update={"confidence": 0.0})})
    return spec.model_copy(update={"search": search})
