"""Notes of the jobs that trainers work at; they outlive their processes and tell what a network's code did to them."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from preprocess.files.reading import read_bytes, read_text
from preprocess.files.writing import open_to_append

_GONE = "gone"
_MOST_BYTES = 1 << 20  # of a note, with Python's stack
_OTHERS_FAULT = ("Bus error", "uncorrectable ECC", "uncorrectable NVLink")
"""Shared memory or a file that has no room; a GPU's memory or link that fails."""


@dataclass(frozen=True)
class Death:
    """How a trainer's process ended in the middle of its work.

    Attributes:
        rank, job: which, and at what.
        stack: Python's, with the signal, of a crash of the job's own code; empty: nobody knows why it ended.
    """

    rank: int
    job: str
    stack: str

    @property
    def error(self) -> str:
        """A line for people."""
        if not self.stack:
            return f"the process of rank {self.rank} was killed"
        cause = self.stack.partition("\n")[0].removeprefix("Fatal Python error: ")
        return f"its code ended the process of rank {self.rank}: {cause}"


class WorkNote:
    """A trainer's note, in a folder that all ranks see.

    Args:
        folder: where the run's notes lie; it is made with the first.
        rank: this process's rank.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self._path = _path(folder, rank)
        self._file: BinaryIO | None = None

    @contextmanager
    def of(self, job: str) -> Iterator[None]:
        """Note the job while the block runs; where the process crashes in it, Python adds the cause and its stack."""
        with suppress(OSError):
            if self._file is None:
                self._path.parent.mkdir(exist_ok=True)
                self._file = open_to_append(self._path)
                os.ftruncate(self._file.fileno(), 0)
                faulthandler.enable(self._file, all_threads=False)
            os.write(self._file.fileno(), job.encode(errors="replace") + b"\n")
        try:
            yield
        finally:
            if self._file is not None:
                with suppress(OSError):
                    os.ftruncate(self._file.fileno(), 0)

    def end_process(self, job: str, cause: str) -> NoReturn:
        """End the process now, as if the job's code had crashed it; the first line of `cause` says why."""
        with self.of(job):
            if self._file is not None:
                with suppress(OSError):
                    os.write(self._file.fileno(), cause.encode(errors="replace"))
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("the signal cannot be ignored")

    def remove(self) -> None:
        """The process ends in good order."""
        if self._file is not None:
            faulthandler.disable()
            self._file.close()
            _remove(self._path)
            with suppress(OSError):  # others are there
                self._path.parent.rmdir()


def mark_gone(folder: Path, ranks: Iterable[int]) -> None:
    """Note that the processes of these ranks are gone: what they worked at may have ended them."""
    for path in [_path(folder, rank) for rank in ranks]:
        with suppress(OSError):
            if read_bytes(path, _MOST_BYTES).count(b"\n") == 1:
                with open_to_append(path) as file:
                    file.write(_GONE.encode())


def take_deaths(folder: Path, ranks: Iterable[int] | None = None) -> list[Death]:
    """Return what is noted of processes that ended in the middle of their work; it is forgotten there.

    Args:
        ranks: these are known to be gone; None: all of an earlier session, where killed ones say nothing.
    """
    if ranks is not None:
        mark_gone(folder, ranks)
    paths = folder.glob("rank-*.txt") if ranks is None else [_path(folder, rank) for rank in ranks]
    return [death for path in sorted(paths) if (death := _taken(path)) is not None]


def _taken(path: Path) -> Death | None:
    try:
        rank = int(path.stem.removeprefix("rank-"))
        job, _, text = read_text(path, _MOST_BYTES, errors="replace").partition("\n")
    except (OSError, ValueError):
        return None
    _remove(path)
    if not job or not text:
        return None
    unknown = text == _GONE or any(fault in text for fault in _OTHERS_FAULT)
    return Death(rank, job, "" if unknown else text)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _path(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.txt"
