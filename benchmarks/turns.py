"""Processes that take turns: each does a step when its pipe says so, tells what it took, and sleeps in between.

Every process has two named pipes in a folder, so ranks that mpiexec starts take part like any other process.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PATIENCE_SECONDS", "Told", "Way", "in_turns", "running", "serve"]

PATIENCE_SECONDS = 300.0
_LOOK_SECONDS = 1.0
_END_SECONDS = 20.0
_LONGEST_LINE = 1 << 16

Told = dict[str, float]
"""What one process tells of a step."""


def serve(folder: Path, member: int, step: Callable[[], Told]) -> None:
    """Do a step for each line in this member's pipe; tell what `step` returns. Returns when nobody asks any more."""
    with open(folder / f"{member}.ask") as asked, open(folder / f"{member}.tell", "w") as told:
        for _ in asked:
            print(json.dumps(step()), file=told, flush=True)


class Way:
    """The processes of one way to do a step, all ready."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], folder: Path, members: int) -> None:
        self._processes = processes
        # Open for both directions: opening waits for nobody, and a member that is late finds its line.
        self._ask = [os.open(folder / f"{member}.ask", os.O_RDWR) for member in range(members)]
        self._tell = [os.open(folder / f"{member}.tell", os.O_RDWR) for member in range(members)]

    def step(self) -> list[Told]:
        """Let all members do a step at once; return what each tells.

        RuntimeError if a process ends; TimeoutError if one is silent for PATIENCE_SECONDS.
        """
        for pipe in self._ask:
            os.write(pipe, b"step\n")
        return [dict(json.loads(self._line(member))) for member in range(len(self._tell))]

    def close(self) -> None:
        """Ask no more, which ends the processes."""
        for pipe in (*self._ask, *self._tell):
            os.close(pipe)
        for process in self._processes:
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _line(self, member: int) -> bytes:
        deadline, line = time.monotonic() + PATIENCE_SECONDS, b""
        while not line.endswith(b"\n"):
            if select.select([self._tell[member]], [], [], _LOOK_SECONDS)[0]:
                line += os.read(self._tell[member], _LONGEST_LINE)
            elif any(process.poll() is not None for process in self._processes):
                raise RuntimeError("a process ended before its step did; see its messages above")
            elif time.monotonic() > deadline:
                raise TimeoutError(f"member {member} has done no step within {PATIENCE_SECONDS:g} s")
        return line


@contextmanager
def running(
    commands: Callable[[Path], Sequence[Sequence[str]]], members: int, environment: Mapping[str, str]
) -> Iterator[Way]:
    """Start the processes of a way and let them do their first step, which warms up; end them.

    commands: what starts them, given the folder of the pipes. members: how many of them, or their ranks, take part.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for member in range(members):
            os.mkfifo(folder / f"{member}.ask")
            os.mkfifo(folder / f"{member}.tell")
        way = Way([subprocess.Popen(command, env=environment) for command in commands(folder)], folder, members)
        try:
            way.step()
            yield way
        finally:
            way.close()


def in_turns(ways: Mapping[str, Way], repetitions: int) -> dict[str, list[list[Told]]]:
    """Return what all members of each way tell of each of their steps; the order alternates."""
    told: dict[str, list[list[Told]]] = {name: [] for name in ways}
    for repetition in range(repetitions):
        for name in list(ways) if repetition % 2 else reversed(list(ways)):
            told[name].append(ways[name].step())
    return told
