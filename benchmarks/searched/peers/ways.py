"""How each library is started, and what its log tells."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.fashion_files import SIDE
from benchmarks.peer_packages import SEARCH_ADVICE, searchers_python
from benchmarks.searched.peers.plan import EVALUATED, Plan
from fleet.journal.events import Epoch
from fleet.journal.journal import read_journal

ROOT = Path(__file__).resolve().parents[3]
WORKERS = 2
WIDTH = 4  # virtual slots of fleet's search: twice the cores
FLEET, SYNCHRONOUS = "fleet", "fleet_synchronous"
OWN = {FLEET: "fleet, halving", SYNCHRONOUS: "fleet, synchronous halving"}
PEERS = {"ray": "Ray Tune, ASHA", "optuna": "Optuna, successive halving", "syne_tune": "Syne Tune, ASHA"}
NAMES = {**OWN, **PEERS}
LOG, RUN = "epochs.jsonl", "run"
_MARK = "FLEET_BENCHMARK_SEARCH"
_POLL = 0.05


class Failed(Exception):
    """A library could not search; the text says why."""


@dataclass(frozen=True)
class EpochDone:
    """An epoch that was trained: its end, in seconds since 1970, and how long it held a core."""

    trial: int
    epoch: int
    accuracy: float
    seconds: float
    unix: float


def command(way: str, folder: Path) -> list[str]:
    """What begins a search, or goes on with it.

    Raises:
        Failed: its library is not installed.
    """
    if way in OWN:
        spec = _spec(folder, way == SYNCHRONOUS)
        return [sys.executable, "-m", "fleet", "run", str(spec), "--out", str(folder / RUN)]
    python = searchers_python()
    if python is None:
        raise Failed(SEARCH_ADVICE)
    return [str(python), "-m", f"benchmarks.searched.peers.with_{way}", str(folder)]


def _spec(folder: Path, synchronous: bool) -> Path:
    """The spec of fleet's search, whose sampler gives the plan's trials."""
    plan, path = Plan.read(folder), folder / "search.yaml"
    source: dict[str, Any] = {part: {"source": "idx", "arguments": files} for part, files in plan.files.items()}
    if plan.padding is not None:
        source["transforms"] = [{"random_crop": {"size": SIDE, "padding": plan.padding}}, "flip"]
    spec = {
        "name": "searched",
        "seed": plan.seed,
        "data": {"fashion": {**source, "normalise": {"mean": [0.2860], "std": [0.3530]}}},
        "search": {
            "name": "trial-{trial}",
            "job": {
                "data": "fashion", "metrics": ["accuracy"], "loss": "cross_entropy", "batch_size": plan.batch,
                "evaluation_batch_size": EVALUATED,
                "model": {"name": "trainers.zoo:CNN", "arguments": {"channels": 1, "classes": 10}},
                "optimizer": {"name": "SGD"}, "stop": {"epochs": plan.epochs},
            },
            "over": {
                "model.arguments.widths": {"choice": unlike([each["widths"] for each in plan.trials])},
                "model.arguments.batch_norm": {"choice": [False, True]},
                "optimizer.arguments.lr": {"log_uniform": [1e-6, 100.0]},
                "optimizer.arguments.momentum": {"uniform": [0.0, 1.0]},
            },
            "metric": "accuracy",
            "sampler": {"name": "benchmarks.searched.peers.planned:Planned", "arguments": {"folder": str(folder)}},
            "stopping": {
                "name": "halving", "eta": plan.eta, "rungs": plan.rungs, "synchronous": synchronous,
            },
            "width": WIDTH,
            "trials": len(plan.trials),
        },
        "policy": {"name": "fifo"},
        "ensemble": False,  # the others do not look at networks together
        "resources": {"trainers": WORKERS, "device": "cpu"},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(spec))
    return path


def unlike(values: list[Any]) -> list[Any]:
    """Each value once, in the order in which they first come."""
    return [value for number, value in enumerate(values) if value not in values[:number]]


def epochs_of(way: str, folder: Path) -> list[EpochDone]:
    """All epochs that were trained so far, those that were trained twice as often."""
    if way in OWN:
        lines = (line for line in read_journal(folder / RUN / "journal.jsonl") if isinstance(line, Epoch))
        return [
            EpochDone(trial_of(line.job), line.epoch, line.metrics["accuracy"],
                      line.seconds * len(line.devices), line.unix)
            for line in lines
        ]  # fmt: skip
    with suppress(FileNotFoundError):
        return [EpochDone(**json.loads(line)) for line in (folder / LOG).read_text().splitlines()]
    return []


def decided(way: str, folder: Path) -> dict[int, int] | None:
    """Trial -> epochs that the search wanted of it; None: the log alone tells it."""
    if way not in OWN:
        return None
    told = json.loads((folder / RUN / "run.json").read_text())["search"]["trials"]
    return {trial_of(each["name"]): each["epochs"] for each in told}


def trial_of(name: str) -> int:
    """The number of fleet's trial of this name."""
    return int(name.rpartition("-")[2])


def searched(way: str, folder: Path, seconds: float, until: Callable[[], bool] = lambda: False) -> float | None:
    """Let a library search; returns the seconds that it took, or None where it was killed, as `until` holds.

    Raises:
        Failed: it fails, or takes longer than so many seconds.
    """
    return ended(command(way, folder), folder, seconds, until)


def ended(words: list[str], folder: Path, seconds: float, until: Callable[[], bool] = lambda: False) -> float | None:
    """Let a command run; as `searched`."""
    begin = time.monotonic()
    with _started(words, folder) as (process, output):
        while process.poll() is None:
            if until():
                return None
            if time.monotonic() - begin > seconds:
                raise Failed(f"it took more than {seconds:.0f} s")
            time.sleep(_POLL)
        taken = time.monotonic() - begin
        if process.returncode:
            last = output.read_text(errors="replace").strip().splitlines()[-3:]
            raise Failed(f"exit code {process.returncode}: {' | '.join(last)}")
    return taken


@contextmanager
def _started(words: list[str], folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Start a command, and at the end kill all processes that came of it."""
    mark, path = uuid.uuid4().hex, folder / f"output-{time.monotonic_ns()}.txt"
    environment = {
        **os.environ, _MARK: mark, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AIR_NEW_OUTPUT": "0", "RAY_worker_niceness": "0",
    }  # fmt: skip
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled, these folders are as they run
    with open(path, "wb") as output:
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process, path
    finally:
        while found := list(_marked(mark)):
            for each in found:
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(signal.SIGKILL)
            psutil.wait_procs(found, timeout=5)
        process.wait()


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process
