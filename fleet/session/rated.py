"""The third stage of a session: it is known how fast each job trains, and how fast preprocessors are."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from time import perf_counter

from fleet.coordination.bookkeeper import Bookkeeper
from fleet.coordination.errors import FailedJobsError, SilentGroupError, TornDataError
from fleet.coordination.protocol import SetBatch
from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.profile import RateProfile
from fleet.profiling.sizing import Size, guessed_rate, size_of
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies import chooses_batches, most_executors, weighs_data_path
from fleet.session.batch_bounds import BatchBound, BatchBounds
from fleet.session.devices import mixes_kinds
from fleet.session.input_checks import rooms_of
from fleet.session.measuring import (
    BatchEnds,
    Effort,
    ExecutorRates,
    Measurement,
    MeasurementResult,
    Profiler,
    Rating,
    Waiting,
    demand,
)
from fleet.session.opened import Opened, describe_job, write_chosen
from fleet.session.options import RunOptions
from fleet.session.prediction import EXECUTORS, KnownRates, RatesByJob, executors_of, foretold_data_path
from fleet.spec import Job
from fleet.spec.job import data_key
from fleet.workers.rank import Rank
from fleet.workers.runtime import batch_set
from fleet.workers.watchdog import stuck_ranks
from preprocess import CorruptLimitError

RatesByKind = Mapping[str, RatesByJob]
PROFILE_SECONDS = 8.0  # of one measurement of a slow job


@dataclass(frozen=True)
class Rated:
    """A run whose jobs have rate curves, other than those that failed.

    Attributes:
        guessed: jobs whose curves are guesses, until training tells better ones.
    """

    opened: Opened
    guessed: Collection[str] = ()


def rate_jobs(opened: Opened) -> Rated:
    """Give every unfinished job a rate curve, unless a stop is asked for."""
    begin = perf_counter()
    rank, keeper, known = opened.rank, opened.books.keeper, opened.ready.known
    profiler = profiler_of(opened) if rank.runtime.rehearsal is None else None
    files: RatesByKind = {kind: each.of_all() for kind, each in known.items()}
    first, waiting = measured_first(opened), waits_for_training(opened)
    if rank.runtime.rehearsal is not None and waiting:
        files = _hidden(opened, files, first)
    guess = partial(guessed_curves, opened) if waiting or _rehearses_trials(rank) else None
    begun = {kind: each.begun(learnt=waiting) for kind, each in known.items()}
    rating = Rating(profiler, keeper, files, begun, guess, first)
    ends = BatchEnds(profiler, keeper, partial(_alone, opened), partial(_by_batch, opened))
    together = ExecutorRates(profiler, keeper, partial(_together, opened), _most_executors(opened))
    keeper.note(keeper.ledger.rating, begins=True)
    with silent_ones_fail(keeper, rank):
        rating.rate()
        ends.rate()
        together.rate()
    keeper.note(keeper.ledger.rating, begins=False)
    _fail_unmeasured(rating, keeper)
    streams = {job.name: job.stream for job in keeper.ledger.jobs.values()}
    data, makers = data_in_use(opened) or sorted(rank.runtime.facts), len(rank.cluster.preprocessors)
    lent, weighed = keeper.ledger.lent.lending.most, weighs_data_path(opened.policy)
    rating.choose_preprocessors(data, makers, streams, opened.policy.shares_streams, lent, weighed)
    _foretell_preprocessors(opened)
    if profiler is not None and not rank.stop.raised:
        _store(_measured(rating, ends, together, opened), opened.output.directory, opened.ready.options)
    keeper.note(keeper.ledger.charged, "profiling", perf_counter() - begin)
    return Rated(opened, rating.guessed)


def _rehearses_trials(rank: Rank) -> bool:
    """Whether this is a rehearsal of a search, whose trials nobody can have measured."""
    return rank.runtime.rehearsal is not None and rank.runtime.spec.search is not None


def _hidden(opened: Opened, files: RatesByKind, first: Collection[str]) -> RatesByKind:
    """The rates that a rehearsal knows which learns: those of jobs that are measured first; it waits by all of them."""
    ledger = opened.books.ledger
    for job in ledger.unfinished:
        if job.name not in first:
            curves = {
                kind: RateCurve(rates[job.name], per_node=ledger.cluster.per_node(kind), workers=job.limit)
                for kind, rates in files.items()
                if job.name in rates
            }
            if curves:
                opened.books.keeper.note(ledger.rehearses, job.name, curves)
    return {kind: {job: rates for job, rates in known.items() if job in first} for kind, known in files.items()}


def _foretell_preprocessors(opened: Opened) -> None:
    """A rehearsal's preprocessors count as fast as its spec says."""
    rank, keeper = opened.rank, opened.books.keeper
    path = foretold_data_path(rank.runtime.spec, sorted(rank.runtime.facts), len(rank.cluster.preprocessors))
    if path is None or rank.runtime.rehearsal is None:
        return
    known = [job for job in keeper.ledger.unfinished if job.curve is not None]
    single = {job.name: float(job.curve(1)) * job.state.passing for job in known if job.curve is not None}
    streams = {job.name: job.stream for job in known}
    wanted = demand(single, streams, keeper.ledger.cluster.size, opened.policy.shares_streams)
    keeper.record(
        events.Preprocessors(
            counts=dict(path.together), of_data=dict(path.of_data), demand=wanted, chosen=path.needed(wanted)
        )
    )


@contextmanager
def silent_ones_fail(keeper: Bookkeeper, rank: Rank) -> Iterator[None]:
    """Jobs that are silent while they are measured have failed."""
    try:
        yield
    except SilentGroupError as error:
        stuck = "".join(stuck_ranks(rank.directory.stacks).values())
        for name in error.jobs:
            keeper.record(
                events.Failed(
                    job=name, epoch=keeper.ledger.jobs[name].epoch, error=str(error), traceback=stuck, cost_ranks=True
                )
            )
        raise


def profiler_of(opened: Opened, seconds: float = PROFILE_SECONDS) -> Profiler:
    """What measures on the run's devices, each time for so many seconds at most."""
    rank, wire, settings = opened.rank, opened.wire, opened.rank.runtime.spec.profile
    waiting = Waiting(rank.runtime.timeout, wire.failure_or_loss, rank.stop, opened.books.skipped.take)
    effort = Effort(settings.batches, settings.timed, seconds)
    return Profiler(wire.mailbox, rank.cluster, effort, waiting, wire.next_tag, opened.walltime)


def _fail_unmeasured(rating: Rating, keeper: Bookkeeper) -> None:
    """A job whose code raises while it is measured is failed; the others go on."""
    for name, result in rating.failures.items():
        left = result.failure
        assert left is not None
        keeper.record(
            events.Failed(
                job=name,
                devices=result.devices,
                epoch=keeper.ledger.jobs[name].epoch,
                error=left.error,
                traceback=left.traceback,
            )
        )


def _measured(rating: Rating, ends: BatchEnds, together: ExecutorRates, opened: Opened) -> RateProfile:
    """All that is known now, under fingerprints by which other runs find it."""
    runtime, models = opened.rank.runtime, opened.rank.cluster.rated
    own = {
        kind: {job.name: runtime.fingerprint(job.name, model) for job in runtime.spec.jobs}
        for kind, model in models.items()
    }
    others = {
        opened.books.batches.fingerprint(*key, models[_home(opened, key[0])]): {1: rate}
        for key, rate in ends.measured.items()
    }
    of_executors = {
        runtime.fingerprint(job, executors_of(models[""])): rates for job, rates in together.measured.items() if rates
    }
    return rating.profile(own).with_rates(others | of_executors)


def _most_executors(opened: Opened) -> int:
    """How many executors of a job the policy may have on an accelerator; 1 where it does not choose."""
    cluster = opened.rank.cluster
    chosen = most_executors(opened.policy) if len(cluster.rated) == 1 and not opened.rank.runtime.rehearsal else 1
    return min(chosen, cluster.members)


def _together(opened: Opened, job: str) -> Mapping[int, float]:
    """Samples/s of 1, 2, ... executors of a job on an accelerator, where a file or an earlier session has them."""
    rank, again = opened.rank, opened.ready.options.profile is not None
    model = executors_of(rank.cluster.device_model)
    return KnownRates(rank.runtime, opened.ready.directory, model, again, named=EXECUTORS).of(rank.runtime, job)


def _by_batch(opened: Opened, job: str) -> Mapping[int, float]:
    """Samples/s on one device of the job's home kind by global batch, as far as a table or a file lists them."""
    return opened.ready.known[_home(opened, job)].by_batch(job)


def _alone(opened: Opened, job: str, batch_size: int) -> float | None:
    """Samples/s on one device of the job's home kind with another batch size of each virtual worker, if known."""
    return opened.ready.known[_home(opened, job)].alone(opened.rank.runtime, job, batch_size)


def _home(opened: Opened, job: str) -> str:
    by_kind = opened.books.ledger.jobs[job].by_kind
    return by_kind.home if by_kind else ""


def _store(profile: RateProfile, directory: RunDirectory, options: RunOptions) -> None:
    """Add what was measured to what the run knew, and write it where the user asked for it."""
    profile = add_to_profile(profile, directory)
    if options.profile is not None:
        profile.write(options.profile.rates)


def waits_for_training(opened: Opened) -> bool:
    """Whether jobs without known rates train by guesses until training has told their rates."""
    spec, rehearsal = opened.rank.runtime.spec, opened.rank.runtime.rehearsal
    if opened.ready.options.profile is not None:
        return False
    return spec.profile.when == "training" if rehearsal is None else spec.rehearse is not None and spec.rehearse.learn


def measured_first(opened: Opened) -> frozenset[str]:
    """Jobs about which something is decided for good before they have trained: no guess is good enough for that.

    A deadline is promised; a batch is chosen; a job stays on the kind of device on which it begins; so many of its
    trainers share an accelerator.
    """
    spec, kinds = opened.rank.runtime.spec, len(opened.ready.known) > 1
    runtime, cluster = opened.rank.runtime, opened.rank.cluster
    batches, shared = chooses_batches(opened.policy), most_executors(opened.policy) > 1
    return frozenset(
        job.name
        for job in spec.jobs
        if job.deadline is not None
        or (batches and job.batches is not None)
        or shared
        or (kinds and not mixes_kinds(runtime, cluster, job.name)[0])
    )


def guess(opened: Opened, size: Size) -> float:
    """Samples/s of a job of that size on one device, of the first kind, by all that the run knows by now."""
    kind, sizes = next(iter(opened.ready.known)), opened.ready.sizes
    rated = (job for job in opened.books.ledger.jobs.recent(kind) if job.name in sizes)
    others = ((sizes[job.name], job.curves[kind](1)) for job in rated)
    return guessed_rate(size, others, opened.rank.cluster.device_name.partition(":")[0])


def guessed_curves(opened: Opened, job: str) -> Mapping[str, RateCurve]:
    """A job's curve on each kind of device, from one such guess."""
    ledger, kind = opened.books.ledger, next(iter(opened.ready.known))
    rates = {1: guess(opened, opened.ready.sizes[job])}
    curve = RateCurve(rates, per_node=ledger.cluster.per_node(kind), workers=ledger.jobs[job].limit)
    return ledger.completed({kind: curve})


def keep_learnt(opened: Opened, guessed: Collection[str]) -> None:
    """Add to the run's profile the rates of those of the jobs that somebody has timed by now.

    Args:
        guessed: jobs that began with guesses.
    """
    ledger, runtime, models = opened.books.ledger, opened.rank.runtime, opened.rank.cluster.rated
    rates, names = {}, {}
    for job in (ledger.jobs[name] for name in guessed):
        for kind, curve in ({} if job.guessed else job.curves).items():
            key = runtime.fingerprint(job.name, models[kind])
            rates[key], names[key] = curve.measured, job.name
    if rates:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        add_to_profile(RateProfile(platform.node(), now, rates, names), opened.output.directory)


def add_to_profile(profile: RateProfile, directory: RunDirectory) -> RateProfile:
    """Add rates to those that the run knows already; returns all of them."""
    if directory.profile.exists():
        profile = RateProfile.read(directory.profile).updated(profile)
    profile.write(directory.profile)
    return profile


def data_in_use(opened: Opened) -> list[str]:
    """The data sets that unfinished jobs read, or trials to come; where all are done, those that these read; sorted."""
    runtime, ledger = opened.rank.runtime, opened.books.ledger
    if opened.searching is not None:
        return sorted(runtime.facts)
    jobs = ledger.unfinished or [job for job in ledger.jobs.values() if job.status != "failed"]
    return sorted({data_key(runtime.job(job.name)) for job in jobs})


@contextmanager
def readers_fail(opened: Opened) -> Iterator[None]:
    """Let the jobs fail whose data are torn, if there are others: all ranks are started again, and go on without them.

    Raises:
        FailedJobsError: so it is.
        TornDataError, CorruptLimitError: all jobs that are left read these data, or the trials to come do.
    """
    try:
        yield
    except (TornDataError, CorruptLimitError) as error:
        ledger, runtime = opened.books.ledger, opened.rank.runtime
        left = [job.name for job in ledger.unfinished]
        readers = [name for name in left if data_key(runtime.job(name)) == error.data]
        if opened.searching is not None or not readers or len(readers) == len(left):
            raise
        lines = error.lines if isinstance(error, TornDataError) else ""
        for name in readers:
            opened.books.keeper.record(
                events.Failed(
                    job=name,
                    devices=ledger.running.get(name, ()),
                    epoch=ledger.jobs[name].epoch,
                    error=str(error),
                    traceback=lines,
                    cost_ranks=True,
                )
            )
        raise FailedJobsError(str(error), *readers) from error


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
    due = keeper.ledger.jobs[job.name].state.deadline
    describe_job(keeper.journal, rank.runtime, rank.runtime.job(job.name), needs, due)


def _fail(opened: Opened, job: str, error: str, traceback: str) -> None:
    keeper = opened.books.keeper
    epoch = keeper.ledger.jobs[job].epoch
    keeper.record(events.Failed(job=job, epoch=epoch, error=error, traceback=traceback))
