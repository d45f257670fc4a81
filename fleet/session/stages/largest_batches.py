"""Between the second stage of a session and the third: jobs with `batch_size: largest` get their batches."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter

from fleet.coordination.protocol import SetBatch
from fleet.journal import events
from fleet.profiling.sizing import size_of
from fleet.session.batch_bounds import BatchBound, BatchBounds
from fleet.session.input_checks import rooms_of
from fleet.session.measuring.plan import Measurement
from fleet.session.measuring.profiler import MeasurementResult
from fleet.session.same_spec import write_chosen
from fleet.session.stages.first_words import describe_job
from fleet.session.stages.opened import Opened
from fleet.session.stages.rated import profiler_of, silent_ones_fail
from fleet.spec import Job
from fleet.workers.runtime import batch_set

FIND_SECONDS = 60.0
"""How long one search may take; what fitted until then is taken."""


def choose_batches(opened: Opened) -> bool:
    """Find the largest batch of each job that asks for it, on each kind of device; the smallest of them is the job's.

    On accelerators larger and larger batches are tried; on CPUs, and in rehearsals, the estimate of memory decides. A
    job whose code fails meanwhile has failed, the others go on.

    Returns:
        Whether all have one now; if not, a stop was asked for.
    """
    jobs = [job for job in opened.rank.runtime.spec.jobs if _is_open(opened, job)]
    if not jobs:
        return True
    begin = perf_counter()
    if opened.rank.runtime.rehearsal is None and any(place.device_bytes for place in opened.rank.cluster.trainers):
        _find(opened, jobs)
    else:
        for job in jobs:
            bound = _bound(opened, job)
            if bound is not None:
                _choose(opened, job, bound.size, bound.limit, {})
    opened.books.keeper.note(opened.books.ledger.charged, "profiling", perf_counter() - begin)
    write_chosen(opened.output.directory, opened.rank.runtime)
    opened.write_ensemble()
    return not any(_is_open(opened, job) for job in opened.rank.runtime.spec.jobs)


def _is_open(opened: Opened, job: Job) -> bool:
    return job.largest_batch is not None and opened.books.ledger.jobs[job.name].waits


def _bound(opened: Opened, job: Job) -> BatchBound | None:
    """How large the job's batch may be; None: that cannot be told, and the job has failed."""
    rank = opened.rank
    bounds = BatchBounds(rank.runtime, rank.cluster, rooms_of(rank.runtime.spec, rank.cluster), opened.ready.sizes)
    try:
        return bounds.of(job)
    except ValueError as error:
        _fail(opened, job.name, str(error), "")
        return None


def _find(opened: Opened, jobs: Iterable[Job]) -> None:
    """Let trainers try; each job on one device of each kind."""
    bounds = {job.name: bound for job in jobs if (bound := _bound(opened, job)) is not None}
    kinds = list(opened.ready.known)
    wanted = [Measurement(name, 1, kind=kind, most=bound.size) for name, bound in bounds.items() for kind in kinds]
    profiler = profiler_of(opened, min(FIND_SECONDS, opened.rank.runtime.timeout / 4))
    found: dict[str, list[MeasurementResult]] = {name: [] for name in bounds}
    with silent_ones_fail(opened.books.keeper, opened.rank):
        for result in profiler.measure(wanted):
            found[result.measurement.job].append(result)
    for job in jobs:
        results = found.get(job.name, [])
        failure = next((result.failure for result in results if result.failure is not None), None)
        if failure is not None:
            _fail(opened, job.name, failure.error, failure.traceback)
        elif len(results) == len(kinds):
            _settle(opened, job, results, bounds[job.name])


def _settle(opened: Opened, job: Job, results: Iterable[MeasurementResult], bound: BatchBound) -> None:
    """The job's batch is the smallest that any kind of device has room for."""
    by_kind = {result.measurement.kind: result.fits for result in results if result.fits is not None}
    least = min(by_kind.values(), key=lambda fits: fits.batch_size)
    limit = bound.limit if least.limit == "most" else least.limit
    _choose(opened, job, least.batch_size, limit, {kind: fits.batch_size for kind, fits in by_kind.items()})


def _choose(opened: Opened, job: Job, size: int, limit: str, by_kind: dict[str, int]) -> None:
    """Let everybody know the job's batch, the journal first."""
    rank, keeper = opened.rank, opened.books.keeper
    keeper.record(events.Batch(job=job.name, batch=size * job.virtual_workers, limit=limit, fits=by_kind))
    news = SetBatch(job.name, size)
    rank.runtime = batch_set(rank.runtime, news)
    opened.wire.to_trainers(news)
    needs = size_of(rank.runtime.task(job.name), rank.runtime.data_of(job.name).layout)
    opened.ready.sizes[job.name] = needs
    due = keeper.state.jobs[job.name].state.deadline
    describe_job(keeper.journal, rank.runtime, rank.runtime.job(job.name), needs, due)


def _fail(opened: Opened, job: str, error: str, traceback: str) -> None:
    keeper = opened.books.keeper
    epoch = keeper.state.jobs[job].epoch
    keeper.record(events.Failed(job=job, epoch=epoch, error=error, traceback=traceback))
