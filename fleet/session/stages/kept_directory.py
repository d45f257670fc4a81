"""The run directory stays this run's as long as it says that it lives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fleet.coordination.failures import CannotGoOnError
from fleet.journal.directory import DirectoryHeldError, RunDirectory
from fleet.journal.lock import BEAT_SECONDS
from fleet.machine.launch.launched import LOST
from fleet.session.wire import Wire
from fleet.workers.rank import GuardedThread

_END_SECONDS = 10.0


class OvertakenError(CannotGoOnError):
    """Another run has come between; the same command goes on after it."""

    code = LOST


@contextmanager
def kept(directory: RunDirectory, wire: Wire, beat: float = BEAT_SECONDS) -> Iterator[None]:
    """Renew the directory's lock every `beat` seconds; where another run has taken it, the wire's waiting fails."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(beat):
            try:
                with suppress(OSError):  # a file system that hangs for once: the next beat may come through
                    directory.renew()
            except DirectoryHeldError as error:
                raise OvertakenError(str(error)) from error

    thread = GuardedThread(renew, "lock")
    wire.also_fails(lambda: thread.failure)
    try:
        yield
    finally:
        over.set()
        thread.join(_END_SECONDS)
