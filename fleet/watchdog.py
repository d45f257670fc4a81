"""Says where a rank stands in its code when it has not moved for long: its Python stack, for rank 0 and for people."""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

PART = 0.9  # of the time-out after which a rank that waits in vain gives up: the stack is there by then
LATER = 1.0  # seconds; Python itself then writes the stack, without a name: something holds its lock


class Watchdog:
    """Watches one thread of a rank, which says every now and then that it moves.

    Where it does not for PART of `timeout` seconds, its stack is written to `FOLDER/rank-N.txt`, and to standard error.
    The file goes when the thread moves again.

    Args:
        rank: of this process.
        folder: of the run's stacks; made when there is one.
        timeout: seconds that ranks wait for each other.
    """

    def __init__(self, rank: int, folder: Path, timeout: float) -> None:
        self._rank, self._file, self._seconds = rank, folder / f"rank-{rank}.txt", PART * timeout
        self._thread = threading.get_ident()
        self._moved = time.monotonic()
        self._told = False
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread = threading.get_ident()
        self.moves()
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._watcher.join(1.0)
        faulthandler.cancel_dump_traceback_later()

    def moves(self) -> None:
        """The thread is not stuck."""
        self._moved = time.monotonic()
        if self._told:
            self._told = False
            self._file.unlink(missing_ok=True)

    def _watch(self) -> None:
        while not self._over.is_set():
            left = self._moved + self._seconds - time.monotonic()
            if left > 0 or self._told:
                # Needs no lock of Python's to fire; put off for as long as this thread gets it.
                if sys.__stderr__ is not None:
                    faulthandler.dump_traceback_later(max(left, self._seconds) + LATER, file=sys.__stderr__)
                self._over.wait(max(0.05, min(left, 1.0)))
            else:
                self._tell()

    def _tell(self) -> None:
        self._told = True
        frame = sys._current_frames().get(self._thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "  its thread has ended\n"
        text = f"rank {self._rank} has not moved for {self._seconds:.1f} s; it is here:\n{stack}"
        print(f"fleet: {text}", file=sys.stderr, end="", flush=True)
        with suppress(OSError):
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_text(text)


def forget_stacks(folder: Path) -> None:
    """Those of an earlier session."""
    for path in folder.glob("rank-*.txt"):
        path.unlink(missing_ok=True)


def stuck_ranks(folder: Path) -> dict[int, str]:
    """What the watchdogs of a run have written and not taken back, by rank; empty if all ranks move."""
    found = {}
    for path in folder.glob("rank-*.txt"):
        with suppress(OSError):
            found[int(path.stem.removeprefix("rank-"))] = path.read_text()
    return dict(sorted(found.items()))
