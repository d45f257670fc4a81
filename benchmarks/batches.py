"""Batches that change while jobs train: how soon a queue is done, what accuracy is reached, and the bits.

The queue is rehearsed: the paper's jobs (Saxena et al., 2020, IV) with variable batches, and with fixed ones, drawn at
random, the largest and the smallest. The accuracy comes from real training (`benchmarks.batch_training`).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, median_bar
from benchmarks.batch_queue import DEVICES, FIXED, MODES, draw_queue, write_queue
from benchmarks.batch_training import train_growing, training_bars, training_table
from benchmarks.fashion_files import fashion_files, is_fashion_there
from benchmarks.rehearsed_ranks import RehearsedRun, rehearse
from fleet.run_directory.journal import read_journal

QUEUES = 1
START_SECONDS, RUN_SECONDS = 120.0, 240.0
SOONER = 1.5

Times = dict[str, dict[str, float]]
"""Mode -> the mean time from a job's arrival to its end, and that from the first arrival to the last end, s."""


def main(repetitions: int = 0) -> dict[str, Any]:
    """Rehearse `repetitions` queues; train and replay.

    Returns:
        {"bars": [...], "tables": [...], "notes": [...]}.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-batches-") as name:
        folder = Path(name)
        queues = [_rehearsed(folder, seed) for seed in range(repetitions or QUEUES)]
        bars, tables = _queue_bars(queues), [_queue_table(queues)]
        if not is_fashion_there():
            note = (
                "Fashion-MNIST is not here (Debian's dataset-fashion-mnist, or a folder that FASHION_MNIST names): "
                "accuracy and bits were not measured"
            )
            return {"bars": bars, "tables": tables, "notes": [note]}
        grown = train_growing(folder, fashion_files(folder)[0])
    return {"bars": bars + training_bars(grown), "tables": [*tables, training_table(grown)], "notes": []}


def _rehearsed(folder: Path, seed: int) -> Times:
    """Rehearse a queue in each mode; which one goes first changes with the seed."""
    jobs, own = draw_queue(seed), folder / f"queue-{seed}"
    own.mkdir()
    order = MODES[seed % len(MODES) :] + MODES[: seed % len(MODES)]
    runs = [RehearsedRun(str(write_queue(own, jobs, mode)), str(own / mode), "throughput") for mode in order]
    rehearse(runs, (DEVICES,), own, START_SECONDS + RUN_SECONDS * len(runs))
    arrivals = {job.name: job.arrival for job in jobs}
    times = {mode: _times(own / mode, arrivals) for mode in MODES}
    print(f"queue {seed}: {times}", file=sys.stderr, flush=True)
    return times


def _times(out: Path, arrivals: dict[str, float]) -> dict[str, float]:
    ends = {event["job"]: event["t"] for event in read_journal(out / "journal.jsonl") if event["event"] == "done"}
    changes = sum(event["event"] == "batch" for event in read_journal(out / "journal.jsonl"))
    waits = [ends[job] - arrival for job, arrival in arrivals.items()]
    return {"completion": statistics.mean(waits), "whole": max(ends.values()), "changes": changes}


def _queue_bars(queues: list[Times]) -> list[Bar]:
    """How many times as long a job takes with fixed batches."""
    ratios = {mode: [times[mode]["completion"] / times["variable"]["completion"] for times in queues] for mode in MODES}
    best = [min(each) for each in zip(*(ratios[mode] for mode in FIXED))]
    sooner = statistics.median(best) >= SOONER
    bars = [median_bar("completion time, best fixed batches by variable", best, f">= {SOONER}", sooner)]
    for mode in ("random", "min"):
        gain = ratios[mode]
        bars.append(
            median_bar(f"completion time, {mode} batches by variable", gain, "> 1", statistics.median(gain) > 1)
        )
    return bars


def _queue_table(queues: list[Times]) -> dict[str, Any]:
    rows = [
        [number, mode, *(round(times[mode][what], 2) for what in ("completion", "whole")), int(times[mode]["changes"])]
        for number, times in enumerate(queues)
        for mode in MODES
    ]
    columns = ["queue", "batches", "completion time, mean, s", "whole queue, s", "batches settled"]
    return {"title": f"rehearsed on {DEVICES} devices", "columns": columns, "rows": rows}
