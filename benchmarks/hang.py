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
import yaml

from fleet.watchdog import PART

RUNS = 10
TIMEOUT_SECONDS = 4.0
BAR_SECONDS = 1.0
RUN_SECONDS = 90.0  # a run that takes longer does not end by itself
FUNCTION = "hangs_here"

PARTS = '''
import ctypes
import json
import os
import signal
import time

import numpy as np
import torch


def hangs_here(kind):
    """Say when and who, then never come back."""
    entered = time.time()
    with open(os.environ["HANG_FILE"] + ".new", "w") as file:
        json.dump({"at": entered, "rank": int(os.environ["OMPI_COMM_WORLD_RANK"]), "process": os.getpid()}, file)
    os.rename(os.environ["HANG_FILE"] + ".new", os.environ["HANG_FILE"])
    while kind != "loops" and time.time() < entered + 0.5:
        pass  # whoever cannot speak for itself is shown where it was seen, and looks are a quarter of a second apart
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "holds the lock":
        ctypes.PyDLL(None).sleep(1000)
    while True:
        pass


def hang(who, place, last):
    """Hang at so many calls, where this is the first of those whom HANG names."""
    wanted, _, kind = os.environ["HANG"].partition(": ")
    if wanted == who and place == last:
        try:
            open(os.environ["HANG_FILE"] + ".first", "x").close()
        except FileExistsError:
            return
        hangs_here(kind)


class Clouds:
    def __init__(self, count):
        draw = np.random.default_rng(count)
        self.labels = draw.integers(0, 3, count)
        self.points = (draw.standard_normal((count, 16)) + self.labels[:, None]).astype(np.float32)
        self.given = 0
    def __len__(self):
        return len(self.labels)
    def __getitem__(self, index):
        self.given += 1
        hang("preprocessor", self.given, 2500)
        return self.points[index], self.labels[index]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 3)
        self.calls = 0
    def forward(self, points):
        self.calls += points.device.type != "meta"
        hang("trainer", self.calls, 150)
        return self.layer(points)
'''
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
            _bar("seconds beyond the set time, median", statistics.median(delays), BAR_SECONDS),
            _bar("seconds beyond the set time, worst", worst, BAR_SECONDS),
            _bar("runs that did not end by themselves", unended, 0),
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


def _bar(name: str, value: float, most: float) -> dict[str, Any]:
    return {"name": name, "value": value, "bar": f"<= {most:g}", "ok": value <= most}


@dataclass(frozen=True)
class _Hang:
    """What became of one.

    Attributes:
        kind: who hung, and how.
        delay: seconds from the set time until its name and place were read; infinite: they never were.
        ended: seconds from the hang to the end of the run and all its ranks; 0: it did not end.
        output: of the run.
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
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=spec.parent, text=True,
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
        _end(process)
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


def _end(process: subprocess.Popen[str]) -> None:
    """End what did not end by itself: the launcher, whose ranks end with it, stopped ones too."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()


def _write_spec(folder: Path) -> Path:
    (folder / "hanging.py").write_text(PARTS)
    (folder / "rates.json").write_text(json.dumps({"rates": {"net": {1: 4000.0, 2: 7600.0}}, "names": {"net": "net"}}))
    spec = {
        "name": "hang",
        "data": {"clouds": {"train": {"source": "hanging:Clouds", "arguments": {"count": 480}}}},
        "jobs": [
            {
                "name": "net",
                "data": "clouds",
                "model": {"name": "hanging:Net"},
                "optimizer": {"name": "SGD", "arguments": {"lr": 0.01}},
                "loss": "cross_entropy",
                "virtual_workers": 2,
                "batch_size": 4,
                "stop": {"epochs": 1000},
            }
        ],
        "resources": {"trainers": 2, "preprocessors": 2, "device": "cpu", "timeout": TIMEOUT_SECONDS},
        "profile": {"file": "rates.json"},
    }
    path = folder / "hang.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path
