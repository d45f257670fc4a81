"""Rank 0's part in a run: it coordinates, preprocesses in a thread, and tells everyone how it ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from fleet.coordination.failures import (
    CannotGoOnError,
    FailedJobsError,
    RanksLost,
    TornDataError,
    abort,
    abort_because,
    storage,
)
from fleet.coordination.protocol import TO_COORDINATOR, TO_KEEPER, TO_PREPROCESSOR, TO_TRAINER, Pulse, Shutdown
from fleet.journal import events
from fleet.journal.directory import DirectoryHeldError
from fleet.journal.work_note import mark_gone
from fleet.machine.launch.launched import BAD_INPUT, DONE, FAILED, HELD, LOST, STOPPED, checking, leave
from fleet.machine.standard_streams import python_alone_on_standard_output, tell
from fleet.models.errors import ModelsError
from fleet.report.analysis import run_costs
from fleet.report.run_history import read_history
from fleet.session.books import output_to
from fleet.session.console import rank_console, show_result
from fleet.session.opened import OvertakenError, SessionContext, kept, make_ready, open_run
from fleet.session.options import RunOptions
from fleet.session.rank_messages import Broadcast
from fleet.session.rated import choose_batches, data_in_use, rate_jobs, readers_fail
from fleet.session.running import start
from fleet.workers.agreement import MENDABLE, THREAD_END_SECONDS
from fleet.workers.preprocessor_rank import PreprocessorRank
from fleet.workers.rank import GuardedThread, Rank
from fleet.workers.watchdog import stuck_ranks
from preprocess.samples.errors import CorruptLimitError

if TYPE_CHECKING:
    from torch import Tensor

    from fleet.models.members import Member, Members
    from fleet.models.validation_data import HeldOut


PULSE_SECONDS = 15.0


def coordinate(rank: Rank, options: RunOptions) -> int:
    """Rank 0's part in the run; returns the exit code, after every rank has been told it."""
    mailbox = rank.mailbox(TO_COORDINATOR)
    preprocessing = GuardedThread(partial(_preprocess, rank), "preprocessor")
    code: int = FAILED
    broadcast = Broadcast(mailbox, rank.cluster, lambda: preprocessing.failure)
    try:
        with python_alone_on_standard_output(), _pulse(rank), storage():
            code = run_session(rank, options, broadcast)
    except DirectoryHeldError as error:
        tell(str(error))
        leave(HELD, 1)
        code = STOPPED if rank.stop.raised else LOST
    except MENDABLE as error:
        tell(str(error))
        code = BAD_INPUT
    except (CannotGoOnError, CorruptLimitError) as error:
        mark_gone(rank.directory.at_work, broadcast.lost())  # the next start knows what they worked at
        # What others were told to do cannot be waited for: end all ranks, and let the next session go on.
        for text in (f"{error}\n", *_who_is_stuck(rank), f"{_advice(error)}\n"):
            tell(text, end="")
        abort(rank.world, error.code if isinstance(error, CannotGoOnError) else FAILED)
    for place in rank.cluster.places:
        inboxes = {TO_TRAINER if place.is_trainer else TO_PREPROCESSOR}
        if place.rank == rank.cluster.lowest_rank(place.node):
            inboxes.add(TO_KEEPER)
        for inbox in inboxes:
            mailbox.send(place.rank, inbox, Shutdown(code))
    mailbox.flush()
    preprocessing.join(THREAD_END_SECONDS)
    return code


def _preprocess(rank: Rank) -> int:
    """Rank 0's part as a preprocessor, in a thread."""
    with rank.watchdog() as watchdog:
        return PreprocessorRank(rank, watchdog.moves).run()


def _who_is_stuck(rank: Rank) -> list[str]:
    """What the watchdogs say; this process's own has said it already."""
    stacks = rank.directory.stacks
    return [text for number, text in stuck_ranks(stacks).items() if number != rank.number]


@contextmanager
def _pulse(rank: Rank) -> Iterator[None]:
    """Let the trainers hear of this rank meanwhile; they end the run if they do not, see `Lifeline`."""
    over = threading.Event()
    trainers = [place.rank for place in rank.cluster.trainers]
    mailbox = rank.mailbox(TO_COORDINATOR)

    def beat() -> None:
        while not over.wait(min(PULSE_SECONDS, rank.runtime.timeout / 4)):
            for trainer in trainers:
                mailbox.send(trainer, TO_TRAINER, Pulse())

    thread = GuardedThread(beat, "pulse", partial(abort_because, rank.world))
    try:
        yield
    finally:
        over.set()
        thread.join(THREAD_END_SECONDS)
        mailbox.flush()


def _advice(error: Exception) -> str:
    """How to go on after an error that ended the run."""
    if isinstance(error, (RanksLost, OvertakenError)):
        return "the same command goes on from the last checkpoints"
    if isinstance(error, FailedJobsError):
        return f"the same command goes on without {', '.join(error.jobs)}"
    if isinstance(error, TornDataError):
        where = f"\nit was raised in\n{error.lines}" if error.lines else ""
        return f"the same command goes on then{where}"
    if isinstance(error, CorruptLimitError):
        return (
            "with a higher limit the same command goes on; samples that a run has skipped stay skipped in it, "
            "so for mended data begin a run in another directory"
        )
    return "mend that and run the same command again; it goes on from the last checkpoints"


def run_session(rank: Rank, options: RunOptions, broadcast: Broadcast) -> int:
    """Make one start of a run on rank 0: check, begin or go on, measure, train, report; returns the exit code."""
    with checking():
        ready = make_ready(rank, options)
    spec = rank.runtime.spec
    with kept(ready.directory, broadcast), output_to(ready.directory, len(spec.jobs), spec.search) as output:
        session = open_run(ready, broadcast, output)
        try:
            with readers_fail(session):
                _train(session)
        except Exception:
            with suppress(OSError):  # what went wrong first is told
                session.save()
            raise
        return _end(session)


def _train(session: SessionContext) -> None:
    """Choose batches, measure, and train what is not trained yet."""
    session.books.skipped.check(*data_in_use(session))
    session.walltime.announce()
    if choose_batches(session):
        guessed = rate_jobs(session)
        if session.options.profile is None:
            start(session, guessed).train()


def _end(session: SessionContext) -> int:
    """Write how it ended, make the report, print the result."""
    output, ledger = session.output, session.books.ledger
    status = _status(session)
    together = voted(session, output.journal.seconds())
    seconds = output.journal.seconds()
    output.journal.write(
        events.Ended(status=status, overhead_seconds=ledger.overhead, wall_seconds=seconds, ensemble=together)
    )
    session.save(status, **_costs(session), **({"ensemble": together} if together else {}))
    output.view.close()
    if session.options.profile is None:
        show_result(output.directory.path, sum(session.books.skipped.counts.values()))
        if session.searching is not None:
            rank_console().print(session.searching.told, soft_wrap=True)
    return {"done": DONE, "failed": FAILED}.get(status, STOPPED)


def _costs(session: SessionContext) -> dict[str, Any]:
    """What run.json tells of costs: nothing where devices have no prices."""
    if not session.rank.runtime.spec.resources.prices:
        return {}
    costs = run_costs(read_history(session.output.directory.journal))
    return {} if costs is None else {"costs": costs.to_json()}


def _status(session: SessionContext) -> str:
    """How the run stands; one that only measures is done once that is."""
    ledger, searching, measures = session.books.ledger, session.searching, session.options.profile is not None
    if searching is not None and not measures and not searching.is_over:
        return "failed" if searching.is_stuck else "stopped"
    if not measures or session.rank.stop.raised:
        return ledger.status
    return "failed" if any(job.status == "failed" for job in ledger.jobs.values()) else "done"


LEAST_SECONDS, MOST_SECONDS, SHARE = 10.0, 20.0, 0.02
"""It takes this share of the run's seconds, but no less than the first and no more than the second."""
_MOST_BYTES = 1 << 31
_METRIC = "accuracy"


class _Late(ModelsError):
    """It would take too long."""


def voted(session: SessionContext, seconds: float) -> dict[str, float]:
    """Return the figures of all done networks together, by a soft vote; empty where there is nothing to tell.

    That needs two or more which measure their accuracy and share their held-out samples. Whatever goes wrong is told in
    a line: the run has ended, and fails no more.

    Args:
        seconds: the run took so long so far.
    """
    runtime = session.rank.runtime
    if not runtime.spec.ensemble or runtime.rehearsal is not None or session.options.profile is not None:
        return {}
    jobs = session.books.ledger.jobs.values()
    names = [job.name for job in jobs if job.status == "done" and _METRIC in job.result()["metrics"]]
    if len(names) < 2 or session.rank.stop.raised:
        return {}
    limit = min(max(LEAST_SECONDS, SHARE * seconds), MOST_SECONDS)
    try:
        return _figures(session, names, _clock(session, limit))
    except Exception as error:  # of the user's code, too
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        hint = f"; `fleet predict {session.output.directory.path}` takes its time" if isinstance(error, _Late) else ""
        tell(f"how good the networks are together is not told: {why}{hint}")
        return {}


def _clock(session: SessionContext, limit: float) -> Callable[[float], None]:
    """What raises _Late once the share of the work that is done says that all of it takes longer than the limit."""
    end, begin = time.monotonic() + limit, time.monotonic()

    def check(share: float) -> None:
        now = time.monotonic()
        if session.rank.stop.raised or now > end or (share and (now - begin) / share > limit):
            raise _Late(f"it would take longer than {limit:.0f} s")

    return check


def _figures(session: SessionContext, names: list[str], check: Callable[[float], None]) -> dict[str, float]:
    from fleet.models.load import load_members
    from fleet.models.members import read_members
    from fleet.models.predictions import BATCH, predict
    from fleet.models.vote import Vote

    found = read_members(session.output.directory.path)
    chosen = [found.of(name) for name in names]
    samples = _shared(session, found, chosen)
    if samples is None:
        return {}
    _check_room(chosen)
    check(0.0)
    ensemble = load_members(found, chosen, each=lambda: check(0.0))
    batches = _watched(samples, BATCH, check)
    verdict = Vote.of_all(predict(ensemble, batches, each=lambda: check(0.0)))
    check(0.0)
    return verdict.ensemble()


def _shared(session: SessionContext, found: Members, chosen: list[Member]) -> HeldOut | None:
    """The held-out samples of all; None where they share none, or give no classes."""
    from fleet.models.predictions import check_classes
    from fleet.models.validation_data import held_out_of

    jobs = [member.job for member in chosen]
    try:
        check_classes(jobs)
        return held_out_of(found.spec, jobs, opened=session.rank.datasets)
    except ModelsError:
        return None


def _check_room(chosen: list[Member]) -> None:
    size = sum(member.checkpoint().stat().st_size for member in chosen)
    if size > _MOST_BYTES:
        raise _Late(f"their checkpoints hold {size / 1e9:.1f} GB, too much for rank 0 beside its work")


def _watched(samples: HeldOut, size: int, check: Callable[[float], None]) -> Iterator[tuple[Tensor, Tensor | None]]:
    """The batches; before each but the first the clock is asked."""
    done = 0
    for inputs, targets in samples.batches(size, lambda: check(0.0)):
        yield inputs, targets
        done += len(inputs)
        check(done / len(samples.samples))
