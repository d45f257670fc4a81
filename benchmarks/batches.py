"""Batches that change while jobs train: how soon a queue is done, what accuracy is reached, and the bits.

Queues are rehearsed: the paper's jobs (Saxena et al., 2020, IV) with variable batches, and with fixed ones, drawn at
random, the largest and the smallest; at the paper's high rate and in the bursts with which it measures queues. The
accuracy comes from real training (`benchmarks.batch_training`). `benchmarks.batch_plans` plans many more such queues.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, median_bar
from benchmarks.batch_plans import Times, planned_times, soonest_end
from benchmarks.batch_queue import DEVICES, FIXED, HIGH, MODES, QUEUED, RATES, QueuedJob, draw_queue, write_queue
from benchmarks.batch_training import train_growing, training_bars, training_table
from benchmarks.fashion_files import fashion_files, is_fashion_there
from benchmarks.rehearsed_ranks import RehearsedRun, rehearse
from fleet.journal.events import Batch, Done
from fleet.journal.journal import read_journal

QUEUES = 1
START_SECONDS, RUN_SECONDS = 120.0, 240.0
SOONER = 1.5


@dataclass(frozen=True)
class Rehearsed:
    """A queue that was rehearsed.

    Attributes:
        rate: of its arrivals, see `RATES`.
        seed: of its draws.
        soonest: when it could end at the soonest, with any batches.
        plans, times: by mode, as `fleet plan` has them and as they were, s.
        settled: by mode, how often a batch was chosen.
    """

    rate: str
    seed: int
    soonest: float
    plans: Mapping[str, Times]
    times: Mapping[str, Times]
    settled: Mapping[str, int]


def main(repetitions: int = 0) -> dict[str, Any]:
    """Rehearse `repetitions` queues at each rate; train and replay.

    Returns:
        {"bars": [...], "tables": [...], "notes": [...]}.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-batches-") as name:
        folder = Path(name)
        drawn = [(rate, seed) for seed in range(repetitions or QUEUES) for rate in RATES]
        queues = _rehearsed(folder, drawn)
        bars, tables = _queue_bars(queues), [_queue_table(queues)]
        if not is_fashion_there():
            note = (
                "Fashion-MNIST is not here (Debian's dataset-fashion-mnist, or a folder that FASHION_MNIST names): "
                "accuracy and bits were not measured"
            )
            return {"bars": bars, "tables": tables, "notes": [note]}
        grown = train_growing(folder, fashion_files(folder)[0])
    return {"bars": bars + training_bars(grown), "tables": [*tables, training_table(grown)], "notes": []}


def _rehearsed(folder: Path, drawn: Sequence[tuple[str, int]]) -> list[Rehearsed]:
    """Rehearse queues of these rates and seeds in each mode; which one goes first changes with the queue."""
    queues, runs = {which: draw_queue(which[1], RATES[which[0]]) for which in drawn}, []
    for number, (which, jobs) in enumerate(queues.items()):
        own = _folder(folder, which)
        own.mkdir()
        for mode in MODES[number % len(MODES) :] + MODES[: number % len(MODES)]:
            runs.append(RehearsedRun(str(write_queue(own, jobs, mode)), str(own / mode), "throughput"))
    rehearse(runs, (DEVICES,), folder, START_SECONDS + RUN_SECONDS * len(runs))
    return [_account(_folder(folder, which), which, jobs) for which, jobs in queues.items()]


def _folder(folder: Path, which: tuple[str, int]) -> Path:
    rate, seed = which
    return folder / f"{rate.replace(' ', '-')}-{seed}"


def _account(own: Path, which: tuple[str, int], jobs: Sequence[QueuedJob]) -> Rehearsed:
    plans = {mode: planned_times(own / f"queue-{mode}.yaml", jobs) for mode in MODES}
    times = {mode: _times(own / mode, jobs) for mode in MODES}
    settled = {
        mode: sum(isinstance(event, Batch) for event in read_journal(own / mode / "journal.jsonl")) for mode in MODES
    }
    queue = Rehearsed(*which, soonest_end(jobs), plans, times, settled)
    print(queue, file=sys.stderr, flush=True)
    return queue


def _times(out: Path, jobs: Sequence[QueuedJob]) -> Times:
    ends = {event.job: event.t for event in read_journal(out / "journal.jsonl") if isinstance(event, Done)}
    return Times(statistics.mean(ends[job.name] - job.arrival for job in jobs), max(ends.values()))


def _queue_bars(queues: Sequence[Rehearsed]) -> list[Bar]:
    """How many times as long a job takes with fixed batches, and how many times as long a queue that bursts fill."""
    high, full = ([queue for queue in queues if queue.rate == rate] for rate in (HIGH, QUEUED))
    ratios = {mode: [_ratio(queue, mode, "completion") for queue in high] for mode in FIXED}
    best, whole = (
        [min(_ratio(queue, mode, what) for mode in FIXED) for queue in those]
        for those, what in ((high, "completion"), (full, "whole"))
    )
    bars = [
        median_bar(name, gains, f">= {SOONER}", statistics.median(gains) >= SOONER)
        for name, gains in (
            ("completion time, best fixed batches by variable", best),
            (f"end of the whole queue at the {QUEUED} rate, best fixed batches by variable", whole),
        )
    ]
    for mode in ("random", "min"):
        gain = ratios[mode]
        bars.append(
            median_bar(f"completion time, {mode} batches by variable", gain, "> 1", statistics.median(gain) > 1)
        )
    return bars


def _ratio(queue: Rehearsed, mode: str, what: str) -> float:
    return float(getattr(queue.times[mode], what) / getattr(queue.times["variable"], what))


def _queue_table(queues: Sequence[Rehearsed]) -> dict[str, Any]:
    rows = [
        [
            queue.rate, queue.seed, mode,
            *(round(seconds, 2) for times in (queue.plans[mode], queue.times[mode]) for seconds in times),
            round(queue.soonest, 2), queue.settled[mode],
        ]
        for queue in queues
        for mode in MODES
    ]  # fmt: skip
    figures = [f"{what}, {how}, s" for how in ("planned", "rehearsed") for what in ("completion, mean", "whole queue")]
    columns = ["jobs come", "queue", "batches", *figures, "soonest end of any batches, s", "batches settled"]
    return {"title": f"rehearsed on {DEVICES} devices", "columns": columns, "rows": rows}
