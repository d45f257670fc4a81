"""What fleet adds to a step of a small network, which computes for a fraction of a millisecond.

Virtual workers in one process against a plain loop that accumulates as many micro-batches, in turns, on one thread,
whose CPU time counts: a busy machine stretches wall time by more than what is measured here.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from benchmarks.bars import at_most
from benchmarks.ways_to_step import Job, Step, plain_loop, virtual_workers

NETWORK, BATCH = "small MLP", 32
WORKERS = (1, 2, 4, 8, 16)
MOST = {1: 1.15, 16: 1.30}
"""Workers -> how much longer than the plain loop's their step may take."""
REPETITIONS, WARM_UP = 41, 5
RUN = 64
"""Batches that are timed together."""


def main(repetitions: int = 0) -> dict[str, Any]:
    """Measure the step of each number of workers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = {workers: _compared(workers, repetitions or REPETITIONS) for workers in WORKERS}
    finally:
        torch.set_num_threads(threads)
    columns = ["workers", "plain loop us", "fleet us", "ratio", "from", "to", "more, us a worker"]
    bars = [
        at_most(f"a step of {workers} virtual worker{'s' * (workers > 1)}, by a plain loop's", found[workers][2], most)
        for workers, most in MOST.items()
    ]
    rows = [[workers, *figures] for workers, figures in found.items()]
    return {"bars": bars, "tables": [{"title": f"a step of a {NETWORK} (64-64-10)", "columns": columns, "rows": rows}]}


def _compared(workers: int, repetitions: int) -> list[float]:
    """Return the medians of both ways' microseconds, their ratio with its least and most, and what a worker adds."""
    job, device = Job(NETWORK, BATCH), torch.device("cpu")
    ways = plain_loop(job, workers, device), virtual_workers(job, workers, device)
    runs = []
    for turn in range(-WARM_UP, repetitions):
        taken = [_microseconds(way, max(1, RUN // workers)) for way in (ways if turn % 2 else ways[::-1])]
        runs += [taken if turn % 2 else taken[::-1]] if turn >= 0 else []
    plain, ours = (median(way) for way in zip(*runs))
    ratios = [own / theirs for theirs, own in runs]
    figures = [round(figure, 2) for figure in (median(ratios), min(ratios), max(ratios))]
    return [round(plain), round(ours), *figures, round((ours - plain) / workers)]


def _microseconds(step: Step, steps: int) -> float:
    begin = time.thread_time()
    for _ in range(steps):
        step()
    return (time.thread_time() - begin) / steps * 1e6
