"""The run directory: its files, its lock, and run.json."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fleet.journal.lock import NAME, HeldError, Lock, take
from fleet.journal.whole_files import strict_json
from preprocess.files.reading import read_json
from preprocess.files.writing import make_folder, refuse_laid_links, write_whole


class RunDirectoryError(ValueError):
    """The directory cannot hold this run; the text says why and what to do."""


class DirectoryHeldError(RunDirectoryError):
    """Another run writes there; after its end the same command goes on."""


class RunDirectory:
    """Paths inside a run directory, and the lock that keeps a second run out of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: Lock | None = None

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

    def read_spec(self) -> dict[str, Any]:
        """Return what spec.json says.

        Raises:
            RunDirectoryError: it is damaged, or cannot be read.
        """
        try:
            content = read_json(self.spec)
            jobs = content.get("jobs", {})
            parts = (content, jobs, *jobs.values(), content.get("determinism", {}), content.get("search") or {})
            if all(isinstance(part, dict) for part in parts):
                return dict(content)
            error = "it is no object of objects"
        except OSError as found:
            error = str(found.strerror)
        except (ValueError, AttributeError) as found:
            error = str(found)
        raise RunDirectoryError(f"{self.spec}: {error}; bring it back from a copy, or name another directory")

    def progress(self) -> tuple[frozenset[str], int]:
        """Return a value that changes when a job has got on, has failed, or is known to have cost a rank."""
        from fleet.journal.events import Failed, RankCost  # ranks that need no more than paths load no events
        from fleet.journal.journal import read_journal

        saved = frozenset(f"{path.parent.name}/{path.name}" for path in (self.path / "checkpoints").glob("*/*.h5"))
        return saved, sum(isinstance(event, (Failed, RankCost)) for event in read_journal(self.journal))

    def open(
        self,
        patience: float = 0.0,
        tell: Callable[[str], object] = lambda text: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create the directory and take its lock, which goes when this process ends.

        Args:
            patience: seconds to wait for another run that holds it.
            tell: is told that this waits.
            stop: whether to wait no more.

        Raises:
            DirectoryHeldError: if another run holds it.
            RunDirectoryError: if it cannot be written, or somebody laid links there.
        """
        out = f"--out {self.path}"
        try:
            make_folder(self.path)
            for entry in os.scandir(self.path):
                if entry.is_symlink():
                    refuse_laid_links(entry.path)
            self._lock = take(self.path / NAME, patience, lambda text: tell(f"{out}: {text}"), stop)
        except HeldError as error:
            mend = "wait for its end and run the same command again, or name another directory"
            raise DirectoryHeldError(f"{out}: {error}; {mend}") from error
        except OSError as error:
            where = "" if error.filename in (None, str(self.path)) else f"{error.filename}: "
            raise RunDirectoryError(f"{out}: {where}{error.strerror}; name a directory that can be written") from error

    def renew(self) -> None:
        """Renew the lock: the run that holds it still lives.

        Raises:
            DirectoryHeldError: another run has taken it.
            OSError: that cannot be written now.
        """
        try:
            if self._lock is not None:
                self._lock.renew()
        except HeldError as error:
            raise DirectoryHeldError(f"--out {self.path}: {error}") from error

    def write_run_json(self, content: Mapping[str, Any]) -> None:
        """Replace run.json by `content`, whole or not at all; what is not finite is null there."""
        write_whole(self.run_json, strict_json(content, indent=1))


_MOST = 5


def no_run(directory: Path) -> str:
    """Return the error of a directory that holds no run, with the runs that lie near it."""
    said = f"{directory} holds no run: there is no journal.jsonl in it"
    near = sorted({*_runs(directory), *_runs(directory.parent), *_runs(Path("runs"))} - {directory}, key=str)
    if not near:
        return f"{said}; name the --out of a `fleet run`"
    more = f" and {len(near) - _MOST} more" if len(near) > _MOST else ""
    return f"{said}; there are runs in {', '.join(map(str, near[:_MOST]))}{more}"


def _runs(folder: Path) -> list[Path]:
    try:
        return [path.parent for path in folder.glob("*/journal.jsonl")]
    except OSError:
        return []
