"""What equal bits cost: virtual workers against a plain loop, the virtual ring against MPI, a step against DDP.

All are ratios of medians of repetitions that take turns in one run, with the spread of the single ratios (the middle
half). Each process computes on one thread.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bars import Bar, at_most
from benchmarks.started_ranks import environment, on_ranks
from benchmarks.turns import Told, in_turns, running
from benchmarks.ways_to_step import NETWORKS, Job

WORKERS, BATCH = 4, 32
REPETITIONS = {"plain loop": 9, "sums": 31, "steps": 21}
"""The shorter a thing takes, the more often, as chance has more of it."""
PATIENCE = 300.0
MOST_TIME, MOST_COPIES, MOST_RING, MOST_STEP = 1.02, 1.0, 1.25, 1.0
RINGS = tuple(
    (megabytes, ranks, workers) for megabytes in (25, 100) for ranks, workers in ((2, 2), (2, 4), (4, 4), (4, 8))
)
RANKS = (2, 4)
BARRED = ("cnn", "resnet")
"""Networks of the bars; an MLP, which does little for each gradient, is shown beside them."""
OTHERS = ("resizing", "instruction_sets")


def main(repetitions: int = 0) -> dict[str, Any]:
    """Measure everything; `repetitions` of each, each part's own number if 0.

    Returns:
        {"bars": [...], "tables": [...], "skipped": [...]}: ratios; seconds in the tables.
    """
    turns = {part: repetitions or own for part, own in REPETITIONS.items()}
    parts = [_against_plain_loop(turns["plain loop"]), _against_allreduce(turns["sums"]), _against_ddp(turns["steps"])]
    parts += [_other(name, repetitions) for name in OTHERS]
    return {key: [entry for part in parts for entry in part.get(key, [])] for key in ("bars", "tables", "skipped")}


def _other(name: str, repetitions: int) -> dict[str, list[Any]]:
    """Return what another benchmark of consistency measures, or that it is not there."""
    try:
        measured = import_module(f"benchmarks.{name}").measure(repetitions)
    except (ModuleNotFoundError, AttributeError) as error:
        print(f"consistency: skips {name}: {error}", file=sys.stderr)
        return {"skipped": [name]}
    return {"bars": measured} if isinstance(measured, list) else dict(measured)


def _against_plain_loop(repetitions: int) -> dict[str, list[Any]]:
    bars, rows = [], []
    for network in NETWORKS:
        seen = _alone(network, repetitions)
        size = sum(parameter.numel() * 4 for parameter in Job(network, BATCH).model().parameters())
        peaks = _peaks(network)
        copies = (peaks["workers"] - peaks["plain"]) / size / WORKERS
        ours, plain = ([entry["wall"] for entry in seen[way]] for way in ("workers", "plain"))
        cpu = _ratio(*([entry["cpu"] for entry in seen[way]] for way in ("workers", "plain")))
        rows.append(
            [network, size / 2**20, median(plain), median(ours), _ratio(ours, plain), *_spread(ours, plain), cpu]
        )
        rows[-1].append(copies)
        if network in BARRED:
            bars.append(_bar(f"{WORKERS} virtual workers over a plain loop, {network}", ours, plain, MOST_TIME))
            bars.append(at_most(f"gradient copies more, a worker, {network}", copies, MOST_COPIES))
    columns = ["network", "MiB", "plain s", "ours s", "ratio", "from", "to", "processor time", "copies a worker"]
    return {"bars": bars, "tables": [{"title": "one process", "columns": columns, "rows": rows}]}


def _against_allreduce(repetitions: int) -> dict[str, list[Any]]:
    bars, rows = [], []
    for megabytes, ranks, workers in RINGS:
        seen = _ranks(ranks, ["ring", str(megabytes), str(workers), str(repetitions)])
        ours, theirs = seen["ours"], seen["theirs"]
        rows.append(
            [megabytes, ranks, workers, median(theirs), median(ours), _ratio(ours, theirs), *_spread(ours, theirs)]
        )
        name = f"virtual ring over Allreduce, {megabytes} MB, {workers} workers on {ranks} ranks"
        bars.append(_bar(name, ours, theirs, MOST_RING))
    columns = ["MB", "ranks", "workers", "MPI s", "ours s", "ratio", "from", "to"]
    return {"bars": bars, "tables": [{"title": "sums", "columns": columns, "rows": rows}]}


def _against_ddp(repetitions: int) -> dict[str, list[Any]]:
    bars, rows = [], []
    for ranks in RANKS:
        for network in NETWORKS:
            ours, theirs = _side_by_side(network, ranks, repetitions)
            rows.append([network, ranks, median(theirs), median(ours), _ratio(ours, theirs), *_spread(ours, theirs)])
            bars.append(
                _bar(f"a step of {ranks} workers on {ranks} ranks over DDP, {network}", ours, theirs, MOST_STEP)
            )
    columns = ["network", "ranks", "DDP s", "ours s", "ratio", "from", "to"]
    return {"bars": bars, "tables": [{"title": "steps", "columns": columns, "rows": rows}]}


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return median(ours) / median(theirs)


def _spread(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Return the quartiles of the single ratios."""
    low, high = np.quantile(np.divide(ours, theirs), [0.25, 0.75])
    return float(low), float(high)


def _bar(name: str, ours: Sequence[float], theirs: Sequence[float], most: float) -> Bar:
    return {**at_most(name, _ratio(ours, theirs), most), "spread": _spread(ours, theirs)}


def _peaks(network: str) -> dict[str, float]:
    """Return the peak memory of both ways, bytes, where what is freed goes back to the system at once."""
    seen = _alone(network, 1, MALLOC_MMAP_THRESHOLD_="65536")
    return {name: entries[0]["peak"] for name, entries in seen.items()}


def _alone(network: str, repetitions: int, **settings: str) -> dict[str, list[Told]]:
    """Let two processes do steps of WORKERS workers in turns."""
    given = {**environment(), **settings}
    with (
        running(lambda folder: [_timed("workers", network, WORKERS, folder)], 1, given) as ours,
        running(lambda folder: [_timed("plain", network, WORKERS, folder)], 1, given) as theirs,
    ):
        told = in_turns({"workers": ours, "plain": theirs}, repetitions)
    return {name: [entry for (entry,) in entries] for name, entries in told.items()}


def _side_by_side(network: str, ranks: int, repetitions: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each step of as many workers as ranks: ours and that of DDP's own processes, in turns."""

    def ours_on_ranks(folder: Path) -> list[list[str]]:
        return [on_ranks(ranks, _timed("ranks", network, ranks, folder)[1:])]

    def ddp(folder: Path) -> list[list[str]]:
        return [[*_timed("ddp", network, ranks, folder), str(rank)] for rank in range(ranks)]

    with running(ours_on_ranks, ranks, environment()) as ours, running(ddp, ranks, environment()) as theirs:
        told = in_turns({"ours": ours, "theirs": theirs}, repetitions)
    seconds = {name: [max(member["wall"] for member in step) for step in steps] for name, steps in told.items()}
    return seconds["ours"], seconds["theirs"]


def _timed(name: str, network: str, workers: int, folder: Path) -> list[str]:
    """Return a command of `benchmarks.timed_processes`."""
    command = [sys.executable, "-m", "benchmarks.timed_processes", name, network, str(BATCH), str(workers), "cpu"]
    return [*command, str(folder)]


def _ranks(count: int, arguments: Sequence[str]) -> dict[str, list[float]]:
    """Run a part under mpiexec; return what its first rank tells on the last line."""
    command = on_ranks(count, ["-m", "benchmarks.timed_processes", *arguments])
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)} on {count} ranks failed; see its messages above")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))
