"""Whole runs of `examples/fashion.yaml` against its networks as plain PyTorch scripts, two at a time, longest first.

Everything counts: starting Python and MPI, reading the files, measuring rates, training, evaluating, checkpoints, the
report. A script is a process of its own with its own DataLoader and one thread; as many run at once as there are
processors, the longest first, which is the best that a job array can do. Both do the same work: equal batches, epochs,
crops, flips, schedules and evaluations. They take turns; each pair gives one ratio.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import yaml

from benchmarks.bars import Bar, median_bar
from benchmarks.fashion_files import COUNTS, SPEC, Files, fashion_files
from benchmarks.plain_script import Network
from benchmarks.started_ranks import environment
from fleet.spec import Job, load

EPOCHS = (1, 3)
PAIRS = 3
AT_ONCE = 2
PATIENCE = 3600.0
MOST = 1.0
"""A run of fleet takes at most so many times the scripts' seconds."""


def main(repetitions: int = 0) -> dict[str, Any]:
    """Measure `repetitions` pairs for each number of epochs.

    Returns:
        {"bars": [...], "tables": [...], "notes": [...]}.
    """
    bars: list[Bar] = []
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory(prefix="fleet-scripts-") as folder:
        files, what = fashion_files(Path(folder))
        for epochs in EPOCHS:
            pairs = compare(Both(Path(folder), files, epochs), repetitions or PAIRS)
            ratios = [pair.fleet / pair.scripts for pair in pairs]
            name = f"{epochs} epochs: a run of fleet over plain scripts, {AT_ONCE} at a time"
            bars.append(median_bar(name, ratios, f"<= {MOST:g}", median(ratios) <= MOST))
            rows += [[epochs, pair.fleet, pair.scripts, ratio] for pair, ratio in zip(pairs, ratios)]
    columns = ["epochs", "fleet, s", "scripts, s", "ratio"]
    busy = psutil.getloadavg()[1]
    return {
        "bars": bars,
        "tables": [{"title": f"whole runs on {what}, in their order", "columns": columns, "rows": rows}],
        "notes": [f"mean load of the last 5 minutes at the end: {busy:.1f}, of which about {AT_ONCE} are these runs'"],
    }


@dataclass(frozen=True)
class Pair:
    """Wall seconds of a run of fleet, and of the scripts beside it in time."""

    fleet: float
    scripts: float


def compare(both: Both, pairs: int) -> list[Pair]:
    """Let them take turns; who goes first changes. A first turn of the scripts, which is not counted, gives lengths."""
    order = both.longest_first()
    found = []
    for turn in range(pairs):
        if turn % 2:
            scripts, fleet = both.scripts(order), both.fleet(turn)
        else:
            fleet, scripts = both.fleet(turn), both.scripts(order)
        found.append(Pair(fleet, scripts))
        print(f"{both.epochs} epochs, pair {turn}: {found[-1]}", file=sys.stderr, flush=True)
    return found


class Both:
    """The ensemble and its networks as scripts.

    Args:
        folder: for what they leave.
        files: part -> "images" and "labels" -> path.
        epochs: of each network.
        counts: pictures by part.
    """

    def __init__(self, folder: Path, files: Files, epochs: int, counts: Mapping[str, int] = COUNTS) -> None:
        self.epochs = epochs
        self._folder, self._files = folder, files
        self._spec = folder / f"fashion-{epochs}.yaml"
        self._spec.write_text(yaml.safe_dump(self._example(counts), sort_keys=False))
        jobs = load(self._spec).jobs
        self.networks = {job.name: self._network(job) for job in jobs}

    def fleet(self, turn: int) -> float:
        """Seconds of a run, from its start to its end."""
        out = self._folder / f"out-{self.epochs}-{turn}"
        return _seconds([sys.executable, "-m", "fleet", "run", str(self._spec), "--out", str(out)])

    def scripts(self, order: Sequence[str]) -> float:
        """Seconds of all scripts, AT_ONCE at a time."""
        begin = time.perf_counter()
        with ThreadPoolExecutor(AT_ONCE) as beside:
            list(beside.map(self._script, order))
        return time.perf_counter() - begin

    def longest_first(self) -> list[str]:
        """The networks in the order of what their scripts take, the longest first."""
        with ThreadPoolExecutor(AT_ONCE) as beside:
            seconds = dict(zip(self.networks, beside.map(self._script, self.networks)))
        return sorted(seconds, key=lambda name: -seconds[name])

    def _script(self, name: str) -> float:
        return _seconds([sys.executable, "-m", "benchmarks.plain_script", json.dumps(asdict(self.networks[name]))])

    def _example(self, counts: Mapping[str, int]) -> dict[str, Any]:
        """The example's spec with these files and epochs, and schedules that end with the last step."""
        spec: dict[str, Any] = yaml.safe_load(SPEC.read_text())
        for part, paths in self._files.items():
            spec["data"]["fashion"][part]["arguments"] = dict(paths)
        defaults = spec["defaults"]
        steps = -(-counts["train"] // (defaults["virtual_workers"] * defaults["batch_size"]))
        defaults["schedule"]["arguments"]["total_steps"] = self.epochs * steps
        defaults["stop"] = {"epochs": self.epochs}
        return spec

    def _network(self, job: Job) -> Network:
        example = yaml.safe_load(self._spec.read_text())
        data = example["data"]["fashion"]
        assert job.model is not None and job.optimizer is not None and job.schedule is not None
        rates: dict[str, Any] = {**job.optimizer.arguments, **job.schedule.arguments}
        return Network(
            job.model.name, dict(job.model.arguments), rates["lr"], rates["max_lr"], rates["total_steps"],
            job.virtual_workers * job.batch_size, self.epochs, 1, self._files,
            data["transforms"][0]["random_crop"]["padding"], *data["normalise"]["mean"], *data["normalise"]["std"],
        )  # fmt: skip


def _seconds(command: Sequence[str]) -> float:
    """Wall seconds of a command that must end well."""
    begin = time.perf_counter()
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:5])} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - begin
