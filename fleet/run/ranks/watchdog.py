"""Says where a rank stands in its code when it has not moved for long: its Python stack, for rank 0 and for people."""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

from fleet.machine.standard_streams import tell
from fleet.run.ranks.stack_board import Board, Seat, Silent
from preprocess.files.reading import read_text
from preprocess.files.writing import write_whole
from trainers import messages
from trainers.reduce import overlap

PART = 0.9  # of the time-out after which a rank that waits in vain gives up: the stack is there by then
_LATER = 1.0  # seconds; Python itself then writes the stack, without a name: something holds its lock
LOOK_SECONDS = 0.25  # between looks at where this rank is, and at its neighbours
_WAITS = (Path(__file__).with_name("feed.py"), Path(messages.__file__).parent, Path(overlap.__file__))
_MOST_BYTES = 1 << 20  # of a stack
_GRACE_SECONDS = 0.25  # for a rank to speak for itself


class Watchdog:
    """Watches one thread of a rank, which says every now and then that it moves, and the other ranks of its node.

    Where the thread does not move for PART of `timeout` seconds, its stack is written to `FOLDER/rank-N.txt`, and to
    standard error. The file goes when the thread moves again. A rank whose process does not run, or has no turn at
    Python's lock, cannot do that: another rank of its node then says where it was seen last.

    Args:
        rank: this process's rank.
        folder: the folder of the run's stacks; made when there is one.
        timeout: seconds that ranks wait for each other.
        seat: at the node's board; None: nobody else watches this rank.
    """

    def __init__(self, rank: int, folder: Path, timeout: float, seat: Seat | None = None) -> None:
        self._rank, self._folder, self._seconds = rank, folder, PART * timeout
        self._seat = seat or Board.alone().seat(0, rank)
        self._thread = threading.get_ident()
        self._put_off_at = -_LATER  # when Python was last told to wait before it writes the stack itself
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread = threading.get_ident()
        self._seat.take()
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._seat.leave()
        self._over.set()
        self._watcher.join(1.0)
        faulthandler.cancel_dump_traceback_later()

    def moves(self) -> None:
        """The thread is not stuck."""
        self._seat.moves()
        if self._seat.told:
            self._seat.told = False
            _file(self._folder, self._rank).unlink(missing_ok=True)

    def _watch(self) -> None:
        while not self._over.is_set():
            left = self._seat.moved + self._seconds - time.monotonic()
            if left <= 0 and not self._seat.told:
                self._tell()
            self._put_off(left)
            self._seat.is_seen(sys._current_frames().get(self._thread))
            for silent in self._seat.silent(self._seconds + _GRACE_SECONDS, fresh=LOOK_SECONDS + _GRACE_SECONDS):
                _say(self._folder, silent.rank, f"{self._unmoved(silent.rank)}; {_seen(silent)}")
            self._over.wait(min(left, LOOK_SECONDS) if left > 0 else LOOK_SECONDS)

    def _put_off(self, left: float) -> None:
        """Let Python write the stack unless this is called again in time; that needs no lock of Python's to fire."""
        now = time.monotonic()
        if sys.__stderr__ is not None and now - self._put_off_at > _LATER:
            self._put_off_at = now
            faulthandler.dump_traceback_later(max(left, self._seconds) + _LATER, file=sys.__stderr__)

    def _tell(self) -> None:
        self._seat.told = True
        frame = sys._current_frames().get(self._thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "  its thread has ended\n"
        _say(self._folder, self._rank, f"{self._unmoved(self._rank)}; it is here:\n{stack}")

    def _unmoved(self, rank: int) -> str:
        return f"rank {rank} has not moved for {self._seconds:.1f} s"


def _seen(silent: Silent) -> str:
    """What another rank can say of a silent one."""
    why = {
        "T": f"its process is stopped (kill -CONT {silent.process} lets it go on)",
        "t": "its process is stopped by a debugger",
        "": "its process does not answer",
    }.get(silent.state, "its code keeps Python's lock, or its process gets no processor")
    return f"{why}; {silent.age:.1f} s ago it was here:\n{silent.stack}"


def _say(folder: Path, rank: int, text: str) -> None:
    tell(text, end="")
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        write_whole(_file(folder, rank), text)


def _file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.txt"


def forget_stacks(folder: Path) -> None:
    """Delete the stacks that an earlier session has left."""
    for path in folder.glob("rank-*.txt"):
        with suppress(OSError):
            path.unlink()


def waits_for_others(stack: str) -> bool:
    """Whether a rank that does not move waits for samples, or for other members of its group."""
    return any(f'File "{place}' in stack for place in _WAITS)


def stuck_ranks(folder: Path) -> dict[int, str]:
    """What the watchdogs of a run have written and not taken back, by rank; empty if all ranks move."""
    found = {}
    for path in folder.glob("rank-*.txt"):
        with suppress(OSError, ValueError):
            found[int(path.stem.removeprefix("rank-"))] = read_text(path, _MOST_BYTES, errors="replace")
    return dict(sorted(found.items()))
