"""A population by fleet and by a plain loop, on the same cores: how long, and how good."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.bars import bar, median_bar
from benchmarks.fashion_files import Files, cut_files
from benchmarks.searched.peers.plan import Plan
from benchmarks.searched.peers.ways import ended
from fleet.journal.events import Decided
from fleet.journal.journal import read_journal

REPETITIONS = 3
MEMBERS, INTERVALS, BATCH = 8, [2, 4, 6], 64
COUNTS = {"train": 5000, "held_out": 2000}  # samples
TRAINERS = 2
LIMIT = 300.0  # seconds of one of them
MOST = 1.25  # times as long as the plain loop
WIDTHS = [16, 32]


def measure(repetitions: int) -> dict[str, Any]:
    """Train a population with each, in turn.

    Args:
        repetitions: seeds; 0: REPETITIONS.

    Returns:
        {"bars": [...], "tables": [...], "notes": [...]}
    """
    walls: dict[str, list[float]] = {"fleet": [], "a plain loop": []}
    best: dict[str, list[float]] = {way: [] for way in walls}
    copies = []
    with tempfile.TemporaryDirectory(prefix="populations-") as name:
        files, what = cut_files(Path(name), COUNTS)
        for seed in range(repetitions or REPETITIONS):
            folder = Path(name) / str(seed)
            folder.mkdir()
            Plan(seed, _members(seed), INTERVALS, 4, BATCH, files).write(folder)
            plain = [sys.executable, "-m", "benchmarks.searched.peers.plain_population", str(folder)]
            run = folder / "run"
            ours = [sys.executable, "-m", "fleet", "run", str(_spec(folder, seed, files)), "--out", str(run)]
            for way, words in zip(walls, (ours, plain)):
                walls[way].append(ended(words, folder, LIMIT) or LIMIT)
            best["fleet"].append(json.loads((run / "run.json").read_text())["search"]["best_value"])
            best["a plain loop"].append(_best_of_log(folder))
            decided = (event for event in read_journal(run / "journal.jsonl") if isinstance(event, Decided))
            copies.append(sum(event.copy is not None for event in decided))
    rows = [
        [way, round(statistics.median(walls[way]), 1), round(statistics.fmean(best[way]), 4)] for way in walls
    ]  # fmt: skip
    ratios = [mine / theirs for mine, theirs in zip(*walls.values())]
    title = f"{what}: {MEMBERS} members, {INTERVALS[-1]} epochs, copies after {INTERVALS[:-1]}, {TRAINERS} cores"
    return {
        "bars": [
            median_bar("wall seconds of a population over those of a plain loop", ratios, f"<= {MOST:g}",
                       statistics.median(ratios) <= MOST),
            bar("members that took another one's weights", min(copies), ">= 1", min(copies) >= 1),
        ],
        "tables": [{"title": title, "columns": ["", "wall s", "best accuracy, mean"], "rows": rows}],
        "notes": [f"fleet's members took another one's weights {', '.join(map(str, copies))} times."],
    }  # fmt: skip


def _members(seed: int) -> list[dict[str, Any]]:
    """Values by seed path (seed, "members")."""
    draw = np.random.default_rng([seed, *b"members"])
    return [
        {
            "widths": WIDTHS, "batch_norm": False, "momentum": float(f"{draw.uniform(0.0, 0.95):.6g}"),
            "lr": float(f"{10 ** draw.uniform(-3.5, -0.5):.6g}"),
        }
        for _ in range(MEMBERS)
    ]  # fmt: skip


def _spec(folder: Path, seed: int, files: Files) -> Path:
    """The spec of fleet's population."""
    source = {part: {"source": "idx", "arguments": named} for part, named in files.items()}
    arguments = {"channels": 1, "classes": 10, "widths": WIDTHS, "batch_norm": False}
    spec = {
        "name": "population",
        "seed": seed,
        "data": {"fashion": {**source, "normalise": {"mean": [0.2860], "std": [0.3530]}}},
        "search": {
            "name": "member-{trial}",
            "job": {
                "data": "fashion", "metrics": ["accuracy"], "loss": "cross_entropy", "batch_size": BATCH,
                "model": {"name": "trainers.zoo:CNN", "arguments": arguments},
                "optimizer": {"name": "SGD"}, "stop": {"epochs": INTERVALS[-1]},
            },
            "over": {
                "optimizer.arguments.lr": {"log_uniform": [0.0003, 0.3]},
                "optimizer.arguments.momentum": {"uniform": [0.0, 0.95]},
            },
            "metric": "accuracy",
            "stopping": {"name": "population", "interval": INTERVALS[0]},
            "width": MEMBERS,
            "trials": MEMBERS,
        },
        "policy": {"name": "fifo"},
        "ensemble": False,
        "resources": {"trainers": TRAINERS, "device": "cpu"},
    }  # fmt: skip
    path = folder / "population.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


def _best_of_log(folder: Path) -> float:
    lines = map(json.loads, (folder / "epochs.jsonl").read_text().splitlines())
    return float(max(line.accuracy for line in lines if line.epoch == INTERVALS[-1]))
