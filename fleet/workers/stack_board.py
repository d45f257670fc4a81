"""A board in a node's shared memory on which each rank writes where it was last seen, for the others to read.

A process that is stopped, or whose code keeps Python's lock, cannot say itself that it hangs: others of its node can.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import FrameSummary, StackSummary
from types import FrameType
from typing import TYPE_CHECKING

import numpy as np

from preprocess.ring.process import is_alive, own_identity
from preprocess.ring.shared_memory import SharedMemory, forked_memory, node_memory

if TYPE_CHECKING:
    from mpi4py import MPI

_TEXT = 4000  # bytes of a stack; its outer calls are left out where it is longer
_ROW = np.dtype(
    [
        ("rank", np.int64),
        ("process", np.int64),
        ("started", np.int64),  # when the process did, see `preprocess.ring.process`
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
