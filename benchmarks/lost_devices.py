"""A trainer of a group is killed on the rig: after how long the others train its network again, by either way of sums.

From the kill to the end of the first step of the group that formed anew, with its communicator where devices add.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.bars import Bar, at_most
from benchmarks.rank_processes import end, rank
from benchmarks.written_spec import write_spec
from fleet.journal.events import Checkpoint, Event, RanksLost, Session, Started
from fleet.journal.journal import read_journal

E = TypeVar("E", bound=Event)

WAYS = ("device", "mpi")
REPETITIONS = 7
SECONDS = 120.0
LOST = 3
"""The rank that is killed; the first three are the coordinator and the trainers that go on."""
TASK = """
import time
from tests.gpu.device_tasks import Convolutions
class Stamped(Convolutions):
    def after_step(self, model):
        with open("steps", "a") as file:
            file.write(f"{time.time()}\\n")
"""


def measure(variables: Mapping[str, str], repetitions: int = 0) -> tuple[Bar, str]:
    """Let both ways lose a trainer in turns; return the bar, and a sentence.

    variables: with which torch knows the rig.
    """
    told: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(repetitions or REPETITIONS):
        for way in WAYS if turn % 2 else reversed(WAYS):
            with tempfile.TemporaryDirectory(prefix="fleet-lost-") as name:
                told[way].append(_seconds(Path(name), way, variables))
    later = [device - mpi for device, mpi in zip(told["device"], told["mpi"])]
    median = statistics.median(later)
    spread = statistics.median(abs(each - median) for each in later)
    words = (
        f"{way} {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}, {len(seconds)} times)"
        for way, seconds in told.items()
    )
    name = "seconds by which a group that lost a member trains again later where devices add than where hosts do"
    note = "from a trainer's end to the next step of its network, on 2 of 3 devices: " + ", ".join(words)
    note += f"; of pairs in turns, devices later by {median:+.2f} s ({min(later):+.2f} to {max(later):+.2f})"
    return at_most(f"{name}: the median of pairs, within their spread", round(median, 3), round(spread, 3), " s"), note


def _seconds(folder: Path, way: str, variables: Mapping[str, str]) -> float:
    (folder / "stamped.py").write_text(TASK)
    job = {"name": "lost", "task": "stamped:Stamped", "virtual_workers": 3, "stop": {"epochs": 100_000}}
    spec: dict[str, Any] = {"name": "lost", "seed": 1, "jobs": [job], "resources": {"device": "auto"}}
    path = write_spec(folder, spec, {"lost": {1: 100.0, 2: 190.0, 3: 270.0}})
    words = [sys.executable, "-m", "fleet", "run", str(path), "--out", "run", "--trainers", "3", "--reduce", way]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "RIG_FORBID": "others",
        "GLOO_SOCKET_IFNAME": "lo",
        **variables,
    }
    with (folder / "log").open("w") as log:
        run = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            _until(lambda: bool(_events(folder, Checkpoint)), run, folder)
            rank(run, LOST).kill()
            killed = time.time()
            _until(lambda: _trains_again(folder), run, folder)
            return _first_step(folder) - killed
        finally:
            end(run)


def _events(folder: Path, kind: type[E]) -> list[E]:
    return [event for event in read_journal(folder / "run" / "journal.jsonl") if isinstance(event, kind)]


def _first_step(folder: Path) -> float:
    """When the first step after the new start ended; infinite: none has."""
    lost = _events(folder, RanksLost)
    again = [event.t for event in _events(folder, Started) if lost and event.t > lost[0].t]
    if not again:
        return float("inf")
    begin = _events(folder, Session)[0]
    after = begin.unix - begin.t + again[0]
    stamps = [float(line) for line in (folder / "steps").read_text().split("\n")[:-1]]
    return min((stamp for stamp in stamps if stamp > after), default=float("inf"))


def _trains_again(folder: Path) -> bool:
    return _first_step(folder) < float("inf")


def _until(holds: Callable[[], bool], run: subprocess.Popen[Any], folder: Path) -> None:
    until = time.monotonic() + SECONDS
    while not holds():
        if run.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the run does not go on: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.02)
