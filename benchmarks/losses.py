"""A trainer is lost: how long until its job makes its next step on another device, and how long the others stand still.

Two networks train on three trainers in one run per repetition; the trainer of one is killed in the middle of an epoch.
Beside that: the same loss where all ranks are started again from their checkpoints, as it must be without ULFM.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from fleet.journal import read_journal

REPETITIONS = 7
BAR_SECONDS = 1.0
LIMIT_SECONDS = 120.0
TRAINERS = 3

NETWORK = '''
import os, time
import numpy as np
import torch

class Points:
    def __init__(self, count):
        draw = np.random.default_rng(count)
        self.points = draw.standard_normal((count, 16)).astype(np.float32)
        self.labels = draw.integers(0, 3, count)
    def __len__(self):
        return len(self.labels)
    def __getitem__(self, index):
        return self.points[index], self.labels[index]

class Noted(torch.nn.Module):
    """A perceptron that notes when and where it computes."""
    def __init__(self, name):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
        self.name = name
    def forward(self, inputs):
        if self.training and inputs.device.type != "meta":
            with open(os.path.join(os.environ["NOTES"], self.name), "a") as notes:
                notes.write(f"{os.environ['OMPI_COMM_WORLD_RANK']} {time.time():.6f}\\n")
        return self.layers(inputs)
'''
JOBS = ("struck", "spared")


@dataclass(frozen=True)
class Loss:
    """What one lost trainer cost, seconds.

    Attributes:
        again: from the kill to the next step of the job that it trained.
        pause: the longest gap between two steps of the other job around the kill.
    """

    again: float
    pause: float


def main(repetitions: int = 0) -> dict[str, Any]:
    """Lose trainers; returns the bars."""
    in_place, anew = [], []
    for _ in range(repetitions or REPETITIONS):
        in_place.append(_lose_one("--in-place"))
        anew.append(_lose_one("--no-in-place"))
    rows = [
        [title, *_spread([getattr(loss, what) for loss in losses])]
        for title, losses, what in (
            ("in place: the lost trainer's job, until its next step elsewhere", in_place, "again"),
            ("in place: longest pause of the other job", in_place, "pause"),
            ("all ranks started again: the lost trainer's job", anew, "again"),
            ("all ranks started again: longest pause of the other job", anew, "pause"),
        )
    ]
    middle = statistics.median(loss.again for loss in in_place)
    return {
        "bars": [
            {
                "name": "lost trainer to first new step elsewhere, median s",
                "value": round(middle, 3),
                "bar": f"< {BAR_SECONDS:g}",
                "ok": middle < BAR_SECONDS,
            }
        ],
        "tables": [{"title": "a lost trainer, seconds", "columns": ["", "median", "least", "most"], "rows": rows}],
        "notes": [f"{len(JOBS)} networks on {TRAINERS} trainers of one node, a checkpoint after each epoch"],
    }


def _spread(values: list[float]) -> list[str]:
    return [f"{value:.3f}" for value in (statistics.median(values), min(values), max(values))]


def _lose_one(option: str) -> Loss:
    """One run in which a trainer is killed; it is ended once the job has gone on."""
    with tempfile.TemporaryDirectory(prefix="fleet-losses-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "fleet", "run", str(_write_spec(folder)), "--out", str(folder / "out"), option]
        with open(folder / "log", "w") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env=_environment(folder)
            )
            try:
                return _struck(process, folder)
            except TimeoutError as error:
                raise RuntimeError(f"{error}:\n{(folder / 'log').read_text()[-3000:]}") from None
            finally:
                process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=LIMIT_SECONDS)


def _struck(process: subprocess.Popen[bytes], folder: Path) -> Loss:
    journal = folder / "out" / "journal.jsonl"
    _await(lambda: journal.exists() and _saved(journal) >= set(JOBS), "a checkpoint of each job")
    rank = _steps(folder, "struck")[-1][0]
    killed = time.time()
    _rank(process, rank).kill()
    _await(lambda: _started(journal, killed), "the job to be started again")
    started = _started(journal, killed)
    _await(lambda: _steps(folder, "struck")[-1][1] > started, "a step")
    again = next(at for _, at in _steps(folder, "struck") if at > started)
    _await(lambda: _steps(folder, "spared")[-1][1] > again, "a step of the other job")
    times = [at for _, at in _steps(folder, "spared") if at > killed - 1.0]
    return Loss(again - killed, max(later - earlier for earlier, later in zip(times, times[1:])))


def _await(holds: Any, what: str) -> None:
    until = time.monotonic() + LIMIT_SECONDS
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {LIMIT_SECONDS:g} s for {what}")
        time.sleep(0.002)


def _saved(journal: Path) -> set[str]:
    return {event["job"] for event in read_journal(journal) if event["event"] == "checkpoint"}


def _started(journal: Path, killed: float) -> float:
    """When the struck job was started after a moment, seconds since 1970; 0 if it was not."""
    times = (
        event["unix"] for event in read_journal(journal) if event["event"] == "started" and event["job"] == JOBS[0]
    )
    return next((at for at in times if at > killed), 0.0)


def _steps(folder: Path, job: str) -> list[tuple[int, float]]:
    """(rank, time) of each pass through the job's network, but for a line that is half written."""
    lines = (folder / "notes" / job).read_text().splitlines(keepends=True)
    found = [line.split() for line in lines if line.endswith("\n")]
    return [(int(rank), float(at)) for rank, at in found]


def _rank(process: subprocess.Popen[bytes], rank: int) -> psutil.Process:
    return next(each for each in _ranks(process) if each.environ()["OMPI_COMM_WORLD_RANK"] == str(rank))


def _ranks(process: subprocess.Popen[bytes]) -> Iterator[psutil.Process]:
    for each in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "OMPI_COMM_WORLD_RANK" in each.environ():
                yield each


def _environment(folder: Path) -> dict[str, str]:
    import os

    (folder / "notes").mkdir()
    return {**os.environ, "NOTES": str(folder / "notes")}


def _write_spec(folder: Path) -> Path:
    (folder / "noted.py").write_text(NETWORK)
    rates = {name: {1: 4000.0, 2: 5000.0} for name in JOBS}
    (folder / "rates.json").write_text(json.dumps({"rates": rates, "names": {name: name for name in rates}}))
    spec = {
        "name": "losses",
        "data": {"points": {"train": {"source": "noted:Points", "arguments": {"count": 4000}}}},
        "defaults": {
            "data": "points",
            "optimizer": {"name": "AdamW", "arguments": {"lr": 0.01}},
            "loss": "cross_entropy",
            "virtual_workers": 2,
            "batch_size": 4,
            "stop": {"epochs": 1000},
        },
        "jobs": [{"name": job, "model": {"name": "noted:Noted", "arguments": {"name": job}}} for job in JOBS],
        "resources": {"trainers": TRAINERS, "device": "cpu"},
        "profile": {"file": "rates.json"},
    }
    path = folder / "losses.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path
