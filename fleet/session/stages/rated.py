"""The third stage of a session: it is known how fast each job trains, and how fast preprocessors are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from fleet.coordination.failures import SilentGroupError
from fleet.coordination.live_state import Recorder
from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.whole_files import RateProfile
from fleet.scheduling.model.rates import RateCurve
from fleet.session.foretold_data_path import foretold_data_path
from fleet.session.known_rates import EXECUTORS, KnownRates, RatesByJob, executors_of
from fleet.session.measuring.batch_ends import BatchEnds
from fleet.session.measuring.executor_rates import ExecutorRates
from fleet.session.measuring.plan import demand
from fleet.session.measuring.profiler import Effort, Profiler, Waiting
from fleet.session.measuring.rating import Rating
from fleet.session.options import RunOptions
from fleet.session.stages.guessing import guessed_curves, measured_first, waits_for_training
from fleet.session.stages.learnt_rates import add_to_profile
from fleet.session.stages.opened import Opened
from fleet.session.stages.torn_data import data_in_use
from fleet.workers.rank import Rank
from fleet.workers.watchdog import stuck_ranks

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
    keeper.note(keeper.state.rating, begins=True)
    with silent_ones_fail(keeper, rank):
        rating.rate()
        ends.rate()
        together.rate()
    keeper.note(keeper.state.rating, begins=False)
    _fail_unmeasured(rating, keeper)
    streams = {job.name: job.stream for job in keeper.state.jobs.values()}
    data, makers = data_in_use(opened) or sorted(rank.runtime.facts), len(rank.cluster.preprocessors)
    lent, weighed = keeper.state.helpers.lending.most, opened.policy.weighs_data_path
    rating.choose_preprocessors(data, makers, streams, opened.policy.shares_streams, lent, weighed)
    _foretell_preprocessors(opened)
    if profiler is not None and not rank.stop.raised:
        _store(_measured(rating, ends, together, opened), opened.output.directory, opened.ready.options)
    keeper.note(keeper.state.charged, "profiling", perf_counter() - begin)
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
    known = [job for job in keeper.state.unfinished if job.curve is not None]
    single = {job.name: float(job.curve(1)) * job.state.passing for job in known if job.curve is not None}
    streams = {job.name: job.stream for job in known}
    wanted = demand(single, streams, keeper.state.cluster.size, opened.policy.shares_streams)
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


def profiler_of(opened: Opened, seconds: float = PROFILE_SECONDS) -> Profiler:
    """What measures on the run's devices, each time for so many seconds at most."""
    rank, wire, settings = opened.rank, opened.wire, opened.rank.runtime.spec.profile
    waiting = Waiting(rank.runtime.timeout, wire.failure_or_loss, rank.stop, opened.books.skipped.take)
    effort = Effort(settings.batches, settings.timed, seconds)
    return Profiler(wire.mailbox, rank.cluster, effort, waiting, wire.next_tag, opened.walltime)


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
    chosen = opened.policy.most_executors if len(cluster.rated) == 1 and not opened.rank.runtime.rehearsal else 1
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
