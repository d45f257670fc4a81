"""The run directory: its files, its lock, and run.json."""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from fleet.run_directory.journal import read_journal
from fleet.run_directory.strict_json import strict_json
from fleet.run_directory.whole_files import write_whole


class RunDirectoryError(ValueError):
    """The directory cannot hold this run; the text says why and what to do."""


class RunDirectory:
    """Paths inside a run directory, and the lock that keeps a second run out of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def run_json(self) -> Path:
        return self.path / "run.json"

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    @property
    def profile(self) -> Path:
        return self.path / "profile.json"

    @property
    def at_work(self) -> Path:
        """The folder of the trainers' notes."""
        return self.path / "at_work"

    @property
    def stacks(self) -> Path:
        return self.path / "stacks"

    def checkpoints(self, job: str) -> Path:
        return self.path / "checkpoints" / job

    def progress(self) -> tuple[frozenset[str], int]:
        """Something else whenever a job has got on, has failed, or is known to have cost a rank."""
        saved = frozenset(f"{path.parent.name}/{path.name}" for path in (self.path / "checkpoints").glob("*/*.h5"))
        return saved, sum(line["event"] in ("failed", "rank_cost") for line in read_journal(self.journal))

    def open(self) -> None:
        """Create the directory and take its lock, which the system drops when this process ends.

        Raises:
            RunDirectoryError: if another run holds it, or it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / ".lock", "w")  # noqa: SIM115 - held for the run
        except OSError as error:
            raise RunDirectoryError(
                f"--out {self.path}: {error.strerror}; name a directory that can be written"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunDirectoryError(
                f"--out {self.path}: another run is writing there now; wait for its end or name another directory"
            ) from error

    def write_run_json(self, content: Mapping[str, Any]) -> None:
        """Replace run.json by `content`, whole or not at all; what is not finite is null there."""
        write_whole(self.run_json, strict_json(content, indent=1))
