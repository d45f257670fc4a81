"""Wishes that a run, or some of its jobs, stop: `fleet stop` leaves them in the run directory, rank 0 heeds them.

DIR/stop/run.json asks the process that it names, which holds the directory's lock, to end the run; rank 0 takes it
away when it has seen it. A later start is another process, so that an old wish stops nobody. DIR/stop/jobs/JOB.json
stands for as long as the job is to stay stopped, through later starts too.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from fleet.journal.lock import NAME, Holder
from preprocess.files.reading import read_json
from preprocess.files.writing import make_folder, write_whole

SECONDS_BETWEEN_LOOKS = 1.0
_MOST_BYTES = 1 << 16  # of a wish


class StopWishes:
    """The folder `stop` of a run directory.

    Args:
        directory: the run's.
        clock: seconds; files are looked for at most once in so many.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._lock, self._clock = directory / "stop", directory / NAME, clock
        self._looked_for_run = self._looked_for_jobs = -float("inf")
        self._jobs: frozenset[str] = frozenset()

    # what people wish

    def stop_run(self, holder: Holder) -> None:
        """Ask the run that this process leads to end."""
        self._write(self._run, {"holder": asdict(replace(holder, beat=0))})

    def forget_run(self) -> None:
        """Take that wish back."""
        self._run.unlink(missing_ok=True)

    @property
    def is_open(self) -> bool:
        """Whether nobody has seen the wish that the run ends."""
        return self._run.exists()

    def stop_job(self, job: str) -> None:
        """Ask for a job to be stopped, and to stay so."""
        self._write(self._folder / "jobs" / f"{job}.json", {"job": job})

    def take_up(self, job: str) -> None:
        """Ask for a job to go on."""
        (self._folder / "jobs" / f"{job}.json").unlink(missing_ok=True)

    # what rank 0 asks

    def who_stops(self) -> str:
        """Who wants this process's run to end, told once; "": nobody."""
        if self._clock() - self._looked_for_run < SECONDS_BETWEEN_LOOKS:
            return ""
        self._looked_for_run = self._clock()
        own = Holder.read(self._lock)
        try:
            wish = read_json(self._run, _MOST_BYTES)
            if own is None or not own.is_same(Holder(**wish["holder"])):
                return ""
            self._run.unlink(missing_ok=True)
            return str(wish["by"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def jobs(self) -> frozenset[str]:
        """The jobs that are to stay stopped."""
        if self._clock() - self._looked_for_jobs >= SECONDS_BETWEEN_LOOKS:
            self._looked_for_jobs = self._clock()
            with suppress(OSError):  # what was known holds until the folder can be read
                self._jobs = frozenset(path.stem for path in (self._folder / "jobs").glob("[!.]*.json"))
        return self._jobs

    @property
    def _run(self) -> Path:
        return self._folder / "run.json"

    def _write(self, path: Path, content: dict[str, object]) -> None:
        make_folder(path.parent)
        write_whole(path, json.dumps({**content, "by": _who(), "unix": time.time()}))


def _who() -> str:
    """user@host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
