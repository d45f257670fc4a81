"""Ranks that hang in five ways: how long after the watchdog's set time they are named, with where they hang.

The set time is nine tenths of `resources.timeout`. It counts from the moment at which the rank enters the function in
which it then hangs; what is waited for is its name and that function's, on the run's standard error.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from benchmarks.bars import at_most
from benchmarks.hanging_parts import hangs_here
from benchmarks.rank_processes import end
from benchmarks.written_spec import write_spec
from fleet.workers.watchdog import PART

ROOT = Path(__file__).resolve().parents[1]
RUNS = 10
TIMEOUT_SECONDS = 4.0
BAR_SECONDS = 1.0
RUN_SECONDS = 90.0  # a run that takes longer does not end by itself
FUNCTION = hangs_here.__name__

KINDS = (
    "trainer: loops",
    "trainer: stopped",
    "preprocessor: loops",
    "preprocessor: stopped",
    "trainer: holds the lock",
)


def main(runs: int = 0) -> dict[str, Any]:
    """Let a rank hang so many times; returns the bars."""
    with tempfile.TemporaryDirectory(prefix="fleet-hang-") as name:
        folder = Path(name)
        spec = _write_spec(folder)
        hangs = [_observed(spec, folder / f"run-{index}", KINDS[index % len(KINDS)]) for index in range(runs or RUNS)]
    delays = sorted(hang.delay for hang in hangs)
    unended = sum(not hang.ended for hang in hangs)
    worst = delays[-1]
    return {
        "bars": [
            at_most("seconds beyond the set time, median", statistics.median(delays), BAR_SECONDS),
            at_most("seconds beyond the set time, worst", worst, BAR_SECONDS),
            at_most("runs that did not end by themselves", unended, 0),
        ],
        "tables": [
            {
                "title": f"{len(hangs)} hangs; set time {PART * TIMEOUT_SECONDS:g} s",
                "columns": ["who and how", "delay, s", "the run ended after, s"],
                "rows": [[hang.kind, hang.delay, hang.ended or "never"] for hang in hangs],
            }
        ],
        "notes": [hang.output[-3000:] for hang in hangs if hang.delay > BAR_SECONDS or not hang.ended],
    }


@dataclass(frozen=True)
class _Hang:
    """What became of one.

    Attributes:
        kind: who hung, and how.
        delay: seconds from the set time until its name and place were read; infinite: they never were.
        ended: seconds from the hang to the end of the run and all its ranks; 0: it did not end.
        output: what the run wrote.
    """

    kind: str
    delay: float
    ended: float
    output: str


def _observed(spec: Path, out: Path, kind: str) -> _Hang:
    """One run in which a rank hangs."""
    hung = out.with_suffix(".hung")
    command = [sys.executable, "-m", "fleet", "run", str(spec), "--out", str(out), "--restarts", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, text=True,
        env={**os.environ, "HANG": kind, "HANG_FILE": str(hung)},
    )  # fmt: skip
    lines = _Lines(process)
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(RUN_SECONDS)
        over = time.time()
        if not hung.exists():
            raise RuntimeError(f"no rank came to hang ({kind}):\n{lines.text}")
        told = json.loads(hung.read_text())
        ended = process.poll() is not None and not _lives(told["process"])
    finally:
        end(process)
    lines.join()
    delay = lines.named(told["rank"]) - told["at"] - PART * TIMEOUT_SECONDS
    found = _Hang(kind, delay, over - told["at"] if ended else 0.0, lines.text)
    print(f"{kind}: named {delay:+.2f} s after the set time; ended: {ended}", file=sys.stderr, flush=True)
    return found


class _Lines(threading.Thread):
    """What a process writes, with the time at which each line was read."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        assert process.stdout is not None
        self._stream: IO[str] = process.stdout
        self._lines: list[tuple[float, str]] = []
        self.start()

    def run(self) -> None:
        for line in self._stream:
            self._lines.append((time.time(), line))

    @property
    def text(self) -> str:
        return "".join(line for _, line in self._lines)

    def named(self, rank: int) -> float:
        """When the name of the rank was there, and after it the function in which it hangs; infinite if never."""
        whose = None
        for at, line in self._lines:
            found = re.match(r"fleet: rank (\d+) has not moved", line)
            if found is not None:
                whose = int(found.group(1))
            if whose == rank and f"in {FUNCTION}" in line:
                return at
        return math.inf


def _lives(process: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    return False


def _write_spec(folder: Path) -> Path:
    spec = {
        "name": "hang",
        "data": {
            "clouds": {"train": {"source": "benchmarks.hanging_parts:HangingClouds", "arguments": {"count": 480}}}
        },
        "jobs": [
            {
                "name": "net",
                "data": "clouds",
                "model": {"name": "benchmarks.hanging_parts:HangingNet"},
                "optimizer": {"name": "SGD", "arguments": {"lr": 0.01}},
                "loss": "cross_entropy",
                "virtual_workers": 2,
                "batch_size": 4,
                "stop": {"epochs": 1000},
            }
        ],
        "resources": {"trainers": 2, "preprocessors": 2, "device": "cpu", "timeout": TIMEOUT_SECONDS},
    }
    return write_spec(folder, spec, {"net": {1: 4000.0, 2: 7600.0}})
