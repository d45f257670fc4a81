"""What a session finds out before it trains: how fast jobs and preprocessors are, and the largest batches."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from time import perf_counter

from fleet.coordination.failures import FailedJobsError, SilentGroupError, TornDataError
from fleet.coordination.live_state import Recorder
from fleet.coordination.protocol import SetBatch
from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.whole_files import RateProfile
from fleet.profiling.sizing import Size, guessed_rate, size_of
from fleet.scheduling.model.rates import RateCurve
from fleet.session.batch_bounds import BatchBound, BatchBounds
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
from fleet.session.opened import SessionContext, describe_job, write_chosen
from fleet.session.options import RunOptions
from fleet.session.plannable_devices import mixes_kinds
from fleet.session.prediction import EXECUTORS, KnownRates, RatesByJob, executors_of, foretold_data_path
from fleet.spec import Job
from fleet.spec.job import data_key
from fleet.workers.rank import Rank
from fleet.workers.runtime import batch_set
from fleet.workers.watchdog import stuck_ranks
from preprocess.samples.errors import CorruptLimitError

RatesByKind = Mapping[str, RatesByJob]
PROFILE_SECONDS = 8.0  # of one measurement of a slow job


def rate_jobs(session: SessionContext) -> Collection[str]:
    """Give every unfinished job a rate curve, unless a stop is asked for.

    Returns:
        Jobs whose curves are guesses, until training tells better ones.
    """
    begin = perf_counter()
    rank, keeper, known = session.rank, session.books.keeper, session.known
    profiler = profiler_of(session) if rank.runtime.rehearsal is None else None
    files: RatesByKind = {kind: each.of_all() for kind, each in known.items()}
    first, waiting = measured_first(session), waits_for_training(session)
    if rank.runtime.rehearsal is not None and waiting:
        files = _hidden(session, files, first)
    guess = partial(guessed_curves, session) if waiting or _rehearses_trials(rank) else None
    begun = {kind: each.begun(learnt=waiting) for kind, each in known.items()}
    rating = Rating(profiler, keeper, files, begun, guess, first)
    ends = BatchEnds(profiler, keeper, partial(_alone, session), partial(_by_batch, session))
    together = ExecutorRates(profiler, keeper, partial(_together, session), _most_executors(session))
    keeper.note(keeper.state.rating, begins=True)
    with silent_ones_fail(keeper, rank):
        rating.rate()
        ends.rate()
        together.rate()
    keeper.note(keeper.state.rating, begins=False)
    _fail_unmeasured(rating, keeper)
    streams = {job.name: job.stream for job in keeper.state.jobs.values()}
    data, makers = data_in_use(session) or sorted(rank.runtime.facts), len(rank.cluster.preprocessors)
    lent, weighed = keeper.state.helpers.lending.most, session.policy.weighs_data_path
    rating.choose_preprocessors(data, makers, streams, session.policy.shares_streams, lent, weighed)
    _foretell_preprocessors(session)
    if profiler is not None and not rank.stop.raised:
        _store(_measured(rating, ends, together, session), session.output.directory, session.options)
    keeper.note(keeper.state.charged, "profiling", perf_counter() - begin)
    return rating.guessed


def _rehearses_trials(rank: Rank) -> bool:
    """Whether this is a rehearsal of a search, whose trials nobody can have measured."""
    return rank.runtime.rehearsal is not None and rank.runtime.spec.search is not None


def _hidden(session: SessionContext, files: RatesByKind, first: Collection[str]) -> RatesByKind:
    """The rates that a rehearsal knows which learns: those of jobs that are measured first; it waits by all of them."""
    ledger = session.books.ledger
    for job in ledger.unfinished:
        if job.name not in first:
            curves = {
                kind: RateCurve(rates[job.name], per_node=ledger.cluster.per_node(kind), workers=job.limit)
                for kind, rates in files.items()
                if job.name in rates
            }
            if curves:
                session.books.keeper.note(ledger.rehearses, job.name, curves)
    return {kind: {job: rates for job, rates in known.items() if job in first} for kind, known in files.items()}


def _foretell_preprocessors(session: SessionContext) -> None:
    """A rehearsal's preprocessors count as fast as its spec says."""
    rank, keeper = session.rank, session.books.keeper
    path = foretold_data_path(rank.runtime.spec, sorted(rank.runtime.facts), len(rank.cluster.preprocessors))
    if path is None or rank.runtime.rehearsal is None:
        return
    known = [job for job in keeper.state.unfinished if job.curve is not None]
    single = {job.name: float(job.curve(1)) * job.state.passing for job in known if job.curve is not None}
    streams = {job.name: job.stream for job in known}
    wanted = demand(single, streams, keeper.state.cluster.size, session.policy.shares_streams)
    keeper.record(
        events.Preprocessors(
            counts=dict(path.together), of_data=dict(path.of_data), demand=wanted, chosen=path.needed(wanted)
        )
    )


@contextmanager
def silent_ones_fail(keeper: Recorder, rank: Rank) -> Iterator[None]:
    """Jobs that are silent while they are measured have failed."""
    try:
        yield
    except SilentGroupError as error:
        stuck = "".join(stuck_ranks(rank.directory.stacks).values())
        for name in error.jobs:
            keeper.record(
                events.Failed(
                    job=name, epoch=keeper.state.jobs[name].epoch, error=str(error), traceback=stuck, cost_ranks=True
                )
            )
        raise


def profiler_of(session: SessionContext, seconds: float = PROFILE_SECONDS) -> Profiler:
    """What measures on the run's devices, each time for so many seconds at most."""
    rank, broadcast, settings = session.rank, session.broadcast, session.rank.runtime.spec.profile
    waiting = Waiting(rank.runtime.timeout, broadcast.failure_or_loss, rank.stop, session.books.skipped.take)
    effort = Effort(settings.batches, settings.timed, seconds)
    return Profiler(broadcast.mailbox, rank.cluster, effort, waiting, broadcast.next_tag, session.walltime)


def _fail_unmeasured(rating: Rating, keeper: Recorder) -> None:
    """A job whose code raises while it is measured is failed; the others go on."""
    for name, result in rating.failures.items():
        left = result.failure
        assert left is not None
        keeper.record(
            events.Failed(
                job=name,
                devices=result.devices,
                epoch=keeper.state.jobs[name].epoch,
                error=left.error,
                traceback=left.traceback,
            )
        )


def _measured(rating: Rating, ends: BatchEnds, together: ExecutorRates, session: SessionContext) -> RateProfile:
    """All that is known now, under fingerprints by which other runs find it."""
    runtime, models = session.rank.runtime, session.rank.cluster.rated
    own = {
        kind: {job.name: runtime.fingerprint(job.name, model) for job in runtime.spec.jobs}
        for kind, model in models.items()
    }
    others = {
        session.books.batches.fingerprint(*key, models[_home(session, key[0])]): {1: rate}
        for key, rate in ends.measured.items()
    }
    of_executors = {
        runtime.fingerprint(job, executors_of(models[""])): rates for job, rates in together.measured.items() if rates
    }
    return rating.profile(own).with_rates(others | of_executors)


def _most_executors(session: SessionContext) -> int:
    """How many executors of a job the policy may have on an accelerator; 1 where it does not choose."""
    cluster = session.rank.cluster
    chosen = session.policy.most_executors if len(cluster.rated) == 1 and not session.rank.runtime.rehearsal else 1
    return min(chosen, cluster.members)


def _together(session: SessionContext, job: str) -> Mapping[int, float]:
    """Samples/s of 1, 2, ... executors of a job on an accelerator, where a file or an earlier session has them."""
    rank, again = session.rank, session.options.profile is not None
    model = executors_of(rank.cluster.device_model)
    return KnownRates(rank.runtime, session.directory, model, again, named=EXECUTORS).of(rank.runtime, job)


def _by_batch(session: SessionContext, job: str) -> Mapping[int, float]:
    """Samples/s on one device of the job's home kind by global batch, as far as a table or a file lists them."""
    return session.known[_home(session, job)].by_batch(job)


def _alone(session: SessionContext, job: str, batch_size: int) -> float | None:
    """Samples/s on one device of the job's home kind with another batch size of each virtual worker, if known."""
    return session.known[_home(session, job)].alone(session.rank.runtime, job, batch_size)


def _home(session: SessionContext, job: str) -> str:
    by_kind = session.books.ledger.jobs[job].by_kind
    return by_kind.home if by_kind else ""


def _store(profile: RateProfile, directory: RunDirectory, options: RunOptions) -> None:
    """Add what was measured to what the run knew, and write it where the user asked for it."""
    profile = add_to_profile(profile, directory)
    if options.profile is not None:
        profile.write(options.profile.rates)


def waits_for_training(session: SessionContext) -> bool:
    """Whether jobs without known rates train by guesses until training has told their rates."""
    spec, rehearsal = session.rank.runtime.spec, session.rank.runtime.rehearsal
    if session.options.profile is not None:
        return False
    return spec.profile.when == "training" if rehearsal is None else spec.rehearse is not None and spec.rehearse.learn


def measured_first(session: SessionContext) -> frozenset[str]:
    """Jobs about which something is decided for good before they have trained: no guess is good enough for that.

    A deadline is promised; a batch is chosen; a job stays on the kind of device on which it begins; so many of its
    trainers share an accelerator.
    """
    spec, kinds = session.rank.runtime.spec, len(session.known) > 1
    runtime, cluster = session.rank.runtime, session.rank.cluster
    batches, shared = session.policy.chooses_batches, session.policy.most_executors > 1
    return frozenset(
        job.name
        for job in spec.jobs
        if job.deadline is not None
        or (batches and job.batches is not None)
        or shared
        or (kinds and not mixes_kinds(runtime, cluster, job.name)[0])
    )


def guess(session: SessionContext, size: Size) -> float:
    """Samples/s of a job of that size on one device, of the first kind, by all that the run knows by now."""
    kind, sizes = next(iter(session.known)), session.sizes
    rated = (job for job in session.books.ledger.jobs.recent(kind) if job.name in sizes)
    others = ((sizes[job.name], job.curves[kind](1)) for job in rated)
    return guessed_rate(size, others, session.rank.cluster.device_name.partition(":")[0])


def guessed_curves(session: SessionContext, job: str) -> Mapping[str, RateCurve]:
    """A job's curve on each kind of device, from one such guess."""
    ledger, kind = session.books.ledger, next(iter(session.known))
    rates = {1: guess(session, session.sizes[job])}
    curve = RateCurve(rates, per_node=ledger.cluster.per_node(kind), workers=ledger.jobs[job].limit)
    return ledger.completed({kind: curve})


def keep_learnt(session: SessionContext, guessed: Collection[str]) -> None:
    """Add to the run's profile the rates of those of the jobs that somebody has timed by now.

    Args:
        guessed: jobs that began with guesses.
    """
    ledger, runtime, models = session.books.ledger, session.rank.runtime, session.rank.cluster.rated
    rates, names = {}, {}
    for job in (ledger.jobs[name] for name in guessed):
        for kind, curve in ({} if job.guessed else job.curves).items():
            key = runtime.fingerprint(job.name, models[kind])
            rates[key], names[key] = curve.measured, job.name
    if rates:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        add_to_profile(RateProfile(platform.node(), now, rates, names), session.output.directory)


def add_to_profile(profile: RateProfile, directory: RunDirectory) -> RateProfile:
    """Add rates to those that the run knows already; returns all of them."""
    if directory.profile.exists():
        profile = RateProfile.read(directory.profile).updated(profile)
    profile.write(directory.profile)
    return profile


def data_in_use(session: SessionContext) -> list[str]:
    """The data sets that unfinished jobs read, or trials to come; where all are done, those that these read; sorted."""
    runtime, ledger = session.rank.runtime, session.books.ledger
    if session.searching is not None:
        return sorted(runtime.facts)
    jobs = ledger.unfinished or [job for job in ledger.jobs.values() if job.status != "failed"]
    return sorted({data_key(runtime.job(job.name)) for job in jobs})


@contextmanager
def readers_fail(session: SessionContext) -> Iterator[None]:
    """Let the jobs fail whose data are torn, if there are others: all ranks are started again, and go on without them.

    Raises:
        FailedJobsError: so it is.
        TornDataError, CorruptLimitError: all jobs that are left read these data, or the trials to come do.
    """
    try:
        yield
    except (TornDataError, CorruptLimitError) as error:
        ledger, runtime = session.books.ledger, session.rank.runtime
        left = [job.name for job in ledger.unfinished]
        readers = [name for name in left if data_key(runtime.job(name)) == error.data]
        if session.searching is not None or not readers or len(readers) == len(left):
            raise
        lines = error.lines if isinstance(error, TornDataError) else ""
        for name in readers:
            session.books.keeper.record(
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


def choose_batches(session: SessionContext) -> bool:
    """Find the largest batch of each job that asks for it, on each kind of device; the smallest of them is the job's.

    On accelerators larger and larger batches are tried; on CPUs, and in rehearsals, the estimate of memory decides. A
    job whose code fails meanwhile has failed, the others go on.

    Returns:
        Whether all have one now; if not, a stop was asked for.
    """
    jobs = [job for job in session.rank.runtime.spec.jobs if _is_open(session, job)]
    if not jobs:
        return True
    begin = perf_counter()
    if session.rank.runtime.rehearsal is None and any(place.device_bytes for place in session.rank.cluster.trainers):
        _find(session, jobs)
    else:
        for job in jobs:
            bound = _bound(session, job)
            if bound is not None:
                _choose(session, job, bound.size, bound.limit, {})
    session.books.keeper.note(session.books.ledger.charged, "profiling", perf_counter() - begin)
    write_chosen(session.output.directory, session.rank.runtime)
    session.write_ensemble()
    return not any(_is_open(session, job) for job in session.rank.runtime.spec.jobs)


def _is_open(session: SessionContext, job: Job) -> bool:
    return job.largest_batch is not None and session.books.ledger.jobs[job.name].waits


def _bound(session: SessionContext, job: Job) -> BatchBound | None:
    """How large the job's batch may be; None: that cannot be told, and the job has failed."""
    rank = session.rank
    bounds = BatchBounds(rank.runtime, rank.cluster, rooms_of(rank.runtime.spec, rank.cluster), session.sizes)
    try:
        return bounds.of(job)
    except ValueError as error:
        _fail(session, job.name, str(error), "")
        return None


def _find(session: SessionContext, jobs: Iterable[Job]) -> None:
    """Let trainers try; each job on one device of each kind."""
    bounds = {job.name: bound for job in jobs if (bound := _bound(session, job)) is not None}
    kinds = list(session.known)
    wanted = [Measurement(name, 1, kind=kind, most=bound.size) for name, bound in bounds.items() for kind in kinds]
    profiler = profiler_of(session, min(FIND_SECONDS, session.rank.runtime.timeout / 4))
    found: dict[str, list[MeasurementResult]] = {name: [] for name in bounds}
    with silent_ones_fail(session.books.keeper, session.rank):
        for result in profiler.measure(wanted):
            found[result.measurement.job].append(result)
    for job in jobs:
        results = found.get(job.name, [])
        failure = next((result.failure for result in results if result.failure is not None), None)
        if failure is not None:
            _fail(session, job.name, failure.error, failure.traceback)
        elif len(results) == len(kinds):
            _settle(session, job, results, bounds[job.name])


def _settle(session: SessionContext, job: Job, results: Iterable[MeasurementResult], bound: BatchBound) -> None:
    """The job's batch is the smallest that any kind of device has room for."""
    by_kind = {result.measurement.kind: result.fits for result in results if result.fits is not None}
    least = min(by_kind.values(), key=lambda fits: fits.batch_size)
    limit = bound.limit if least.limit == "most" else least.limit
    _choose(session, job, least.batch_size, limit, {kind: fits.batch_size for kind, fits in by_kind.items()})


def _choose(session: SessionContext, job: Job, size: int, limit: str, by_kind: dict[str, int]) -> None:
    """Let everybody know the job's batch, the journal first."""
    rank, keeper = session.rank, session.books.keeper
    keeper.record(events.Batch(job=job.name, batch=size * job.virtual_workers, limit=limit, fits=by_kind))
    news = SetBatch(job.name, size)
    rank.runtime = batch_set(rank.runtime, news)
    session.broadcast.to_trainers(news)
    needs = size_of(rank.runtime.task(job.name), rank.runtime.data_of(job.name).layout)
    session.sizes[job.name] = needs
    due = keeper.state.jobs[job.name].state.deadline
    describe_job(keeper.journal, rank.runtime, rank.runtime.job(job.name), needs, due)


def _fail(session: SessionContext, job: str, error: str, traceback: str) -> None:
    keeper = session.books.keeper
    epoch = keeper.state.jobs[job].epoch
    keeper.record(events.Failed(job=job, epoch=epoch, error=error, traceback=traceback))
