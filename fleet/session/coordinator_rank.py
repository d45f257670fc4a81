"""Rank 0's part in a run: it coordinates, preprocesses in a thread, and tells everyone how it ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

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
from fleet.journal.directory import DirectoryHeldError
from fleet.journal.work_note import mark_gone
from fleet.machine.launch.launched import BAD_INPUT, FAILED, HELD, LOST, STOPPED, leave
from fleet.machine.standard_streams import python_alone_on_standard_output, tell
from fleet.session.options import RunOptions
from fleet.session.stages.kept_directory import OvertakenError
from fleet.session.stages.session import Session
from fleet.session.wire import Wire
from fleet.workers.agreement import MENDABLE, THREAD_END_SECONDS
from fleet.workers.preprocessor_rank import PreprocessorRank
from fleet.workers.rank import GuardedThread, Rank
from fleet.workers.watchdog import stuck_ranks
from preprocess.samples.errors import CorruptLimitError

PULSE_SECONDS = 15.0


def coordinate(rank: Rank, options: RunOptions) -> int:
    """Rank 0's part in the run; returns the exit code, after every rank has been told it."""
    mailbox = rank.mailbox(TO_COORDINATOR)
    preprocessing = GuardedThread(partial(_preprocess, rank), "preprocessor")
    code: int = FAILED
    wire = Wire(mailbox, rank.cluster, lambda: preprocessing.failure)
    try:
        with python_alone_on_standard_output(), _pulse(rank), storage():
            code = Session(rank, options, wire).run()
    except DirectoryHeldError as error:
        tell(str(error))
        leave(HELD, 1)
        code = STOPPED if rank.stop.raised else LOST
    except MENDABLE as error:
        tell(str(error))
        code = BAD_INPUT
    except (CannotGoOnError, CorruptLimitError) as error:
        mark_gone(rank.directory.at_work, wire.lost())  # the next start knows what they worked at
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
