"""Eight trained networks predict in one pass against a pass for each, and their figures against torchmetrics.

A pass is what `fleet predict` does after it has started: it reads the run and the networks, reads and decodes the
pictures, lets the networks predict, and tells the figures. Both ways take turns in one process.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import h5py
import numpy as np

from benchmarks.bars import at_most, median_bar
from benchmarks.started_ranks import environment, launcher
from benchmarks.torchmetrics_figures import figures_of_loops
from benchmarks.trained_pictures import MEMBERS, train_networks
from fleet.models.members import read_members
from fleet.models.predict import AskedPrediction, told_of

HELD_OUT = 1024
REPETITIONS = 3
TIMES = 4.0
CLOSE = 1e-6
RANKS = 3


def measure(repetitions: int = 0, held_out: int = HELD_OUT) -> dict[str, Any]:
    """Returns {"bars": [...], "tables": [...]}; `held_out`: pictures that are predicted."""
    with tempfile.TemporaryDirectory(prefix="predicting-") as name:
        folder = Path(name)
        run = train_networks(folder, held_out)
        together, apart = _seconds(run, repetitions or REPETITIONS)
        difference = _largest_difference(run)
        unequal = _unequal(folder, run)
    ratios = [own / shared for own, shared in zip(apart, together)]
    what = f"fleet predict of {MEMBERS} networks over {MEMBERS} passes: times the samples a second"
    bars = [
        median_bar(what, ratios, f">= {TIMES:g}", statistics.median(ratios) >= TIMES),
        at_most("figures of fleet predict: largest difference from torchmetrics on plain loops", difference, CLOSE),
        at_most(f"fleet predict on 1 and {RANKS} ranks: files and figures that are not the same", unequal, 0),
    ]
    rows = [
        [way, statistics.median(seconds), min(seconds), max(seconds), held_out / statistics.median(seconds)]
        for way, seconds in (("one pass for all", together), ("a pass for each", apart))
    ]
    columns = ["way", "median, s", "least", "most", "pictures a second with all networks"]
    title = f"{held_out} JPEG pictures of 256 px, {MEMBERS} small networks, one processor"
    return {"bars": bars, "tables": [{"title": title, "columns": columns, "rows": rows}]}


def _seconds(run: Path, repetitions: int) -> tuple[list[float], list[float]]:
    """Seconds of one pass for all, and of all passes of one network each; they take turns after a first, uncounted."""
    names = [member.name for member in read_members(run).all]
    _pass(run, "all")
    together, apart = [], []
    for _ in range(repetitions):
        together.append(_pass(run, "all"))
        apart.append(sum(_pass(run, name) for name in names))
    return together, apart


def _pass(run: Path, members: str) -> float:
    begin = perf_counter()
    told_of(run, AskedPrediction(members))
    return perf_counter() - begin


def _largest_difference(run: Path) -> float:
    """Of any figure of any network, and of all together."""
    told, loops = told_of(run, AskedPrediction()), figures_of_loops(run)
    given = {**told["members"], "all together": told["ensemble"]}
    return max(abs(value - given[name][figure]) for name, figures in loops.items() for figure, value in figures.items())


def _unequal(folder: Path, run: Path) -> int:
    """How many arrays of the written files, and figures, differ by any bit between one rank and several."""
    found = []
    for ranks in (1, RANKS):
        file = folder / f"on-{ranks}.h5"
        command = [*launcher(), "-n", str(ranks), sys.executable, "-m", "fleet", "predict", str(run)]
        done = subprocess.run(
            [*command, "--json", "--out", str(file)], env=environment(), capture_output=True, text=True, check=True
        )
        told = {key: value for key, value in json.loads(done.stdout).items() if key != "seconds"}
        with h5py.File(file) as arrays:
            found.append({**told, **{f"{name} of the file": _bits(arrays[name][()]) for name in arrays}})
    one, several = found
    return sum(one[key] != several[key] for key in one) + len(one.keys() ^ several.keys())


def _bits(array: np.ndarray[Any, Any]) -> bytes:
    return (array.astype(bytes) if array.dtype == object else array).tobytes()
