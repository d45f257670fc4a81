"""Tries examples on a target, within bounds of time and memory, and keeps what escapes."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from tests.faults.fuzz.targets import Target

SECONDS = 10.0  # of this process's own computing that an example may take
MORE_BYTES = 1 << 30  # of addresses that examples may take, beyond those that the process has when it begins
NOTE_SECONDS = 0.5


class TooLong(BaseException):
    """An example takes longer than it may; no reader may take this for damage."""


@dataclass
class Tally:
    """What became of the examples.

    Attributes:
        escapes: where an error came from that no reader may raise -> its traceback.
        slowest: seconds of computing.
    """

    target: str
    examples: int = 0
    refused: int = 0
    slowest: float = 0.0
    escapes: dict[str, str] = field(default_factory=dict)


class Attempts:
    """Tries one example after the other.

    Args:
        target: on which.
        folder: is for this alone; holds what examples make, the tally, and each example that escaped.
    """

    def __init__(self, target: Target, folder: Path) -> None:
        self._target, self._folder, self._noted = target, folder, 0.0
        self.tally = Tally(target.name)
        folder.mkdir(parents=True, exist_ok=True)

    def one(self, content: bytes) -> Any:
        """Let the target read an example; returns what it gave, or its refusal."""
        work = self._folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        (self._folder / "last.bin").write_bytes(content)  # for an example that ends the process
        begin = time.process_time()
        outcome = self._read(content, work)
        self.tally.slowest = max(self.tally.slowest, time.process_time() - begin)
        self.tally.examples += 1
        if self.tally.examples == 1 or time.monotonic() - self._noted > NOTE_SECONDS:
            self.note()
        return outcome

    def note(self) -> None:
        """Write the tally down."""
        self._noted = time.monotonic()
        (self._folder / "tally.json").write_text(json.dumps(asdict(self.tally)))

    def _read(self, content: bytes, work: Path) -> Any:
        try:
            with _timed():
                outcome = self._target.read(content, work)
                repr(outcome)  # what was taken can be told to people
                return outcome
        except self._target.refusals as error:
            self.tally.refused += 1
            if str(error):
                return error
            self._escaped(AssertionError(f"{error!r} says nothing"), content)
        except (Exception, TooLong, SystemExit) as error:
            self._escaped(error, content)
        return None

    def _escaped(self, error: BaseException, content: bytes) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "/site-packages/" not in frame.filename and "/lib/" not in frame.filename]
        at = (ours or frames)[-1] if frames else None
        key = f"{type(error).__name__} in {Path(at.filename).name}:{at.lineno}" if at else type(error).__name__
        if key not in self.tally.escapes:
            number = len(self.tally.escapes)
            (self._folder / f"escape-{number}.bin").write_bytes(content)
            self.tally.escapes[key] = "".join(traceback.format_exception(error))[-4000:]
            self.note()


def folder_of(folder: Path, name: str) -> Path:
    """A target's own folder."""
    return folder / name.replace(" ", "-")


def bound_memory() -> None:
    """Let this process take MORE_BYTES of addresses more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def free_memory() -> None:
    """Let this process take what addresses it wants, as long as it makes examples and loads libraries."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


@contextmanager
def _timed() -> Iterator[None]:
    """Raise TooLong inside after SECONDS of computing."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong(f"more than {SECONDS:g} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def say(text: str) -> None:
    """To people who watch."""
    print(text, file=sys.stderr, flush=True)
