"""Says where a rank stands in its code when it has not moved for long: its Python stack, for rank 0 and for people."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import FrameSummary, StackSummary
from types import FrameType
from typing import TYPE_CHECKING

import numpy as np

from fleet.coordination.failures import CannotGoOnError
from fleet.machine.standard_streams import tell
from preprocess.files.reading import read_text
from preprocess.files.writing import write_whole
from preprocess.ring.shared_memory import SharedMemory, forked_memory, is_alive, node_memory, own_identity
from trainers import messages
from trainers.reduce import reduction

if TYPE_CHECKING:
    from mpi4py import MPI


PART = 0.9  # of the time-out after which a rank that waits in vain gives up: the stack is there by then
_LATER = 1.0  # seconds; Python itself then writes the stack, without a name: something holds its lock
LOOK_SECONDS = 0.25  # between looks at where this rank is, and at its neighbours
_WAITS = (Path(__file__).with_name("feed.py"), Path(messages.__file__).parent, Path(reduction.__file__))
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


_TEXT = 4000  # bytes of a stack; its outer calls are left out where it is longer
_ROW = np.dtype(
    [
        ("rank", np.int64),
        ("process", np.int64),
        ("started", np.int64),  # when the process did, see `preprocess.ring.shared_memory`
        ("sits", np.int64),  # whether there is somebody to watch
        ("told", np.int64),  # whether somebody has said that it does not move
        ("moved", np.float64),  # when it last did; seconds of the node's monotonic clock
        ("seen", np.float64),  # when its watchdog last wrote here
        ("newest", np.int64),  # of the two stacks: a process may be stopped while it writes one
        ("lengths", np.int64, 2),
        ("stacks", np.uint8, (2, _TEXT)),
    ]
)


class Board:
    """The rows of a node's ranks; made by `create`, or `alone` for one rank without MPI."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self._rows = memory.bytes.view(_ROW)

    @classmethod
    def create(cls, node_comm: MPI.Intracomm) -> Board:
        """Collective over the processes that share the node's memory.

        Raises:
            SharedMemoryError: too little is free; the same on every rank.
        """
        return cls(node_memory(node_comm, node_comm.size * _ROW.itemsize))

    @classmethod
    def alone(cls, seats: int = 1) -> Board:
        """For threads of this process, and those that it forks afterwards."""
        return cls(forked_memory(seats * _ROW.itemsize))

    def seat(self, number: int, rank: int) -> Seat:
        """The row of that number, for this process to write in."""
        return Seat(self, number, rank)

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, number: int) -> np.void:
        """A row in place: all see the values that are assigned to its fields."""
        found: np.void = self._rows[number]
        return found

    def column(self, name: str) -> np.ndarray:
        """A field of all rows in place: each step writes one and reads one, and a whole row is slow to take apart."""
        found: np.ndarray = self._rows[name]
        return found

    def is_gone(self, number: int) -> bool:
        """Whether the process of a row is known to have ended: that is told elsewhere, and is no hang."""
        row = self.row(number)
        return self._memory.comparable_ids and not is_alive(int(row["process"]), int(row["started"]))

    def state(self, number: int) -> str:
        """The letter that Linux has for what the process of a row does, such as T: stopped; empty if nobody says."""
        if not self._memory.comparable_ids:
            return ""
        with suppress(OSError, IndexError):
            text = Path(f"/proc/{int(self.row(number)['process'])}/stat").read_text()
            return text.rpartition(")")[2].split()[0]
        return ""


@dataclass(frozen=True)
class Silent:
    """A rank that should have said that it does not move, and did not."""

    rank: int
    process: int
    state: str
    stack: str
    age: float  # seconds since the stack was seen


class Seat:
    """One rank's place at the board."""

    def __init__(self, board: Board, number: int, rank: int) -> None:
        self._board, self._number = board, number
        self._row = board.row(number)
        self._moved, self._told = board.column("moved"), board.column("told")
        self._row["rank"] = rank
        self._row["process"], self._row["started"] = own_identity()

    def take(self) -> None:
        """From now on this rank is watched."""
        self.moves()
        self._row["seen"] = time.monotonic()
        self._row["sits"] = 1

    def leave(self) -> None:
        """It is watched no more."""
        self._row["sits"] = 0

    def moves(self) -> None:
        """This rank is not stuck."""
        self._moved[self._number] = time.monotonic()

    @property
    def moved(self) -> float:
        """When it last did."""
        return float(self._row["moved"])

    @property
    def told(self) -> bool:
        """Whether somebody, this rank or another, has said that this rank does not move."""
        return bool(self._told[self._number])

    @told.setter
    def told(self, value: bool) -> None:
        self._row["told"] = value

    def is_seen(self, frame: FrameType | None) -> None:
        """Write down where its thread is now."""
        text = _packed(frame)
        other = 1 - int(self._row["newest"])
        self._row["stacks"][other, : len(text)] = np.frombuffer(text, np.uint8)
        self._row["lengths"][other] = len(text)
        self._row["newest"], self._row["seen"] = other, time.monotonic()

    def silent(self, seconds: float, fresh: float) -> Iterator[Silent]:
        """Others that have not moved for so long, and that this rank should name; each is named once.

        The first rank after a silent one that has itself been seen within `fresh` seconds names it.
        """
        now, board = time.monotonic(), self._board
        for number in range(len(board)):
            row = board.row(number)
            if number == self._number or not row["sits"] or row["told"] or now - row["moved"] <= seconds:
                continue
            if self._first_after(number, now - fresh):
                row["told"] = 1
                if board.is_gone(number):
                    continue
                newest = int(row["newest"])
                packed = row["stacks"][newest, : int(row["lengths"][newest])].tobytes()
                age = now - float(row["seen"])
                yield Silent(int(row["rank"]), int(row["process"]), board.state(number), _unpacked(packed), age)

    def _first_after(self, number: int, since: float) -> bool:
        """Whether all ranks between that one and this one have not been seen since then."""
        count = len(self._board)
        between = (self._board.row((number + step) % count) for step in range(1, (self._number - number) % count))
        return not any(row["sits"] and row["seen"] >= since for row in between)


def _packed(frame: FrameType | None) -> bytes:
    """File, line and function of each call, a line each, the innermost first, as many as there is room for."""
    text = b""
    while frame is not None:
        code = frame.f_code
        line = f"{code.co_filename}\t{frame.f_lineno or 0}\t{code.co_name}\n".encode(errors="replace")
        if len(text) + len(line) > _TEXT:
            break
        text, frame = text + line, frame.f_back
    return text


def _unpacked(text: bytes) -> str:
    """The stack as Python prints it, the innermost call last."""
    calls = [line.split("\t") for line in text.decode(errors="replace").splitlines()]
    frames = [FrameSummary(file, int(line), name) for file, line, name in reversed(calls)]
    return "".join(StackSummary.from_list(frames).format())


_SILENT_SECONDS = 5.0  # beyond the time-out: others may know more of why rank 0 is silent


class Orphaned(CannotGoOnError):
    """The process that started this rank is gone."""


class Unheard(CannotGoOnError):
    """Rank 0, which sends a pulse, is heard of no more."""


class Lifeline:
    """Ends a rank that nobody leads any more.

    Args:
        timeout: seconds without a word of rank 0 that are too many.

    Attributes:
        fatal: why the run must end, as rank 0 was told.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout, self._heard, self._parent = timeout, time.monotonic(), os.getppid()
        self.fatal = ""

    def heard(self) -> None:
        """Rank 0 has said something."""
        self._heard = time.monotonic()

    @property
    def is_orphaned(self) -> bool:
        """Whether the launcher is gone."""
        return os.getppid() != self._parent

    def check_launcher(self) -> None:
        """Raise Orphaned if the launcher is gone."""
        if self.is_orphaned:
            raise Orphaned("the launcher of this rank is gone")

    def check_pulse(self) -> None:
        """Raise Unheard if rank 0 is stuck as a whole: in a source of data that keeps Python's lock."""
        silence = time.monotonic() - self._heard
        if silence > self._timeout + _SILENT_SECONDS:
            more = f"; {self.fatal}" if self.fatal else ""
            raise Unheard(f"rank 0 has said nothing for {silence:.0f} s: a source of data may be stuck there{more}")
