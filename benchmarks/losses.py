"""A trainer is lost: how long until its job makes its next step on another device, and how long the others stand still.

Two networks train on three trainers in one run per repetition; the trainer of one is killed in the middle of an epoch.
Beside that: the same loss where all ranks are started again from their checkpoints, as it must be without ULFM.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import bar
from benchmarks.noting_network import passes
from benchmarks.rank_processes import rank
from benchmarks.written_spec import write_spec
from fleet.journal.events import Checkpoint, Started
from fleet.journal.journal import read_journal

ROOT = Path(__file__).resolve().parents[1]
REPETITIONS = 7
BAR_SECONDS = 1.0
LIMIT_SECONDS = 120.0
TRAINERS = 3

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
            bar(
                "lost trainer to first new step elsewhere, median s",
                round(middle, 3),
                f"< {BAR_SECONDS:g}",
                middle < BAR_SECONDS,
            )
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
                command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env=_environment(folder)
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
    journal, notes = folder / "out" / "journal.jsonl", folder / "notes"
    _await(lambda: journal.exists() and _saved(journal) >= set(JOBS), "a checkpoint of each job")
    trainer = passes(notes, "struck")[-1][0]
    killed = time.time()
    rank(process, trainer).kill()
    _await(lambda: _started(journal, killed), "the job to be started again")
    started = _started(journal, killed)
    _await(lambda: passes(notes, "struck")[-1][1] > started, "a step")
    again = next(at for _, at in passes(notes, "struck") if at > started)
    _await(lambda: passes(notes, "spared")[-1][1] > again, "a step of the other job")
    times = [at for _, at in passes(notes, "spared") if at > killed - 1.0]
    return Loss(again - killed, max(later - earlier for earlier, later in zip(times, times[1:])))


def _await(holds: Any, what: str) -> None:
    until = time.monotonic() + LIMIT_SECONDS
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {LIMIT_SECONDS:g} s for {what}")
        time.sleep(0.002)


def _saved(journal: Path) -> set[str]:
    return {event.job for event in read_journal(journal) if isinstance(event, Checkpoint)}


def _started(journal: Path, killed: float) -> float:
    """When the struck job was started after a moment, seconds since 1970; 0 if it was not."""
    times = (event.unix for event in read_journal(journal) if isinstance(event, Started) and event.job == JOBS[0])
    return next((at for at in times if at > killed), 0.0)


def _environment(folder: Path) -> dict[str, str]:
    (folder / "notes").mkdir()
    return {**os.environ, "NOTES": str(folder / "notes")}


def _write_spec(folder: Path) -> Path:
    models = {job: {"name": "benchmarks.noting_network:Noted", "arguments": {"name": job}} for job in JOBS}
    spec = {
        "name": "losses",
        "data": {"clouds": {"train": {"source": "benchmarks.clouds:Clouds", "arguments": {"count": 4000}}}},
        "defaults": {
            "data": "clouds",
            "optimizer": {"name": "AdamW", "arguments": {"lr": 0.01}},
            "loss": "cross_entropy",
            "virtual_workers": 2,
            "batch_size": 4,
            "stop": {"epochs": 1000},
        },
        "jobs": [{"name": job, "model": model} for job, model in models.items()],
        "resources": {"trainers": TRAINERS, "device": "cpu"},
    }
    return write_spec(folder, spec, {name: {1: 4000.0, 2: 5000.0} for name in JOBS})
