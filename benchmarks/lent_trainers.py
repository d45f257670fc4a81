"""Trainers without a network that prepare samples: what they bring where each sample needs a core for a while.

Pictures of Fashion-MNIST, or of its shapes, are warped in plain Python by one preprocessor, much more slowly than the
networks train. Of three trainers one or two stand idle; runs take turns in which none of them may help, one, and two.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import median_bar
from benchmarks.fashion_files import Files, cut_files
from benchmarks.written_spec import write_spec
from fleet.journal.events import Epoch, Started
from fleet.journal.journal import read_journal

REPETITIONS, PATIENCE = 3, 900.0
LENT = (0, 1, 2)
SAMPLES, HELD_OUT, EPOCHS, WARPS = 1200, 100, 10, 4
TRAINERS, WORKERS, BATCH = 3, 4, 16
MLP = {"name": "trainers.zoo:MLP", "arguments": {"widths": [64]}}
CNN = {"name": "trainers.zoo:CNN", "arguments": {"widths": [8, 16]}}
CASES: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "one network": {"mlp": MLP},
    "two networks": {"mlp": MLP, "cnn": CNN},
}
LEARNT = 2
"""Epochs until rates are known and whoever can help does: the middle of a run begins with their end."""
SOONER, NO_WORSE = 1.2, 0.95


@dataclass(frozen=True)
class LentRun:
    """A run, as it was.

    Attributes:
        whole: seconds of the command.
        cores: seconds of processors that it took.
        rate: samples/s of a network from the end of epoch `LEARNT` on, the slowest network's.
        lent: trainers that prepared samples of its last epochs.
    """

    whole: float
    cores: float
    rate: float
    lent: int


Runs = dict[tuple[str, int], list[LentRun]]
"""(case, how many trainers may prepare) -> its runs."""


def main(repetitions: int = 0) -> dict[str, Any]:
    """Run every case in turns, `repetitions` times.

    Returns:
        {"bars": [...], "tables": [...], "notes": [...]}.
    """
    runs: Runs = {(case, lent): [] for case in CASES for lent in LENT}
    with tempfile.TemporaryDirectory(prefix="fleet-lent-") as name:
        folder = Path(name)
        files, what = cut_files(folder, {"train": SAMPLES, "held_out": HELD_OUT})
        for repetition in range(repetitions or REPETITIONS):
            for case in CASES:
                for lent in LENT if repetition % 2 else reversed(LENT):
                    run = _run(folder / f"{repetition}-{case.replace(' ', '-')}-{lent}", files, case, lent)
                    print(f"{case}, {lent}: {run}", file=sys.stderr, flush=True)
                    runs[case, lent].append(run)
    return {"bars": _bars(runs), "tables": [_table(runs)], "notes": [what]}


def _run(own: Path, files: Files, case: str, lent: int) -> LentRun:
    own.mkdir()
    spec, out = write_spec(own, _spec(files, case, lent)), own / "out"
    begin, used = time.perf_counter(), _used()
    command = [sys.executable, "-m", "fleet", "run", str(spec), "--out", str(out)]
    subprocess.run(command, stdout=sys.stderr, timeout=PATIENCE, check=True)
    whole, used = time.perf_counter() - begin, _used() - used
    ends: dict[str, list[float]] = {}
    helping = 0
    for event in read_journal(out / "journal.jsonl"):
        if isinstance(event, Epoch):
            ends.setdefault(event.job, []).append(event.t)
        elif isinstance(event, Started):
            helping = len(event.prepared_by)
    rates = [(len(each) - LEARNT) * SAMPLES / (each[-1] - each[LEARNT - 1]) for each in ends.values()]
    return LentRun(whole, used, min(rates), helping)


def _used() -> float:
    """Processor seconds of all that this process has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _spec(files: Files, case: str, lent: int) -> dict[str, Any]:
    data = {part: {"source": "idx", "arguments": dict(paths)} for part, paths in files.items()}
    return {
        "name": "lent",
        "data": {"pictures": {**data, "transforms": [{"benchmarks.slow_augmentation:Warp": {"times": WARPS}}]}},
        "defaults": {
            "data": "pictures",
            "optimizer": {"name": "SGD", "arguments": {"lr": 0.05}},
            "virtual_workers": WORKERS,
            "batch_size": BATCH,
            "stop": {"epochs": EPOCHS},
        },
        "jobs": [{"name": name, "model": model} for name, model in CASES[case].items()],
        "resources": {"trainers": TRAINERS, "preprocessors": 1, "preparing_trainers": lent, "device": "cpu"},
        "policy": {"name": "malleable"},
    }


def _bars(runs: Runs) -> list[dict[str, Any]]:
    bars = []
    for case in CASES:
        gains = _gains(runs, case, 1, "rate")
        name, sooner = f"{case}: samples/s with 1 trainer that prepares by without", statistics.median(gains) >= SOONER
        bars.append(median_bar(name, gains, f">= {SOONER}", sooner))
        gains = [1 / gain for gain in _gains(runs, case, 2, "whole")]
        name, well = f"{case}: whole run without by with 2 that prepare", statistics.median(gains) >= NO_WORSE
        bars.append(median_bar(name, gains, f">= {NO_WORSE}", well))
    return bars


def _gains(runs: Runs, case: str, lent: int, what: str) -> list[float]:
    return [getattr(one, what) / getattr(none, what) for one, none in zip(runs[case, lent], runs[case, 0])]


def _table(runs: Runs) -> dict[str, Any]:
    rows = []
    for (case, lent), those in runs.items():
        figures = [
            f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
            for values in ([getattr(run, what) for run in those] for what in ("whole", "cores", "rate"))
        ]
        rows.append([case, lent, max(run.lent for run in those), *figures])
    columns = [
        "networks",
        "may prepare",
        "did",
        "whole run, s",
        "processor seconds",
        "samples/s of a network in its middle",
    ]
    title = f"{TRAINERS} trainers, 1 preprocessor, medians of {len(next(iter(runs.values())))}"
    return {"title": title, "columns": columns, "rows": rows}
