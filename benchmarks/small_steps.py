"""What fleet adds to a step of a small network, which computes for a fraction of a millisecond.

Virtual workers in one process against a plain loop that accumulates as many micro-batches, in turns, on one thread.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from benchmarks.ways_to_step import Job, Step, plain_loop, virtual_workers

NETWORK, BATCH = "small MLP", 32
WORKERS = (1, 2, 4, 8, 16)
REPETITIONS, WARM_UP = 21, 3
RUN = 50
"""Steps that are timed together."""


def main(repetitions: int = 0) -> dict[str, Any]:
    """Measure the step of each number of workers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = [[workers, *_compared(workers, repetitions or REPETITIONS)] for workers in WORKERS]
    finally:
        torch.set_num_threads(threads)
    columns = ["workers", "plain loop us", "fleet us", "ratio", "from", "to", "more, us a worker"]
    return {"bars": [], "tables": [{"title": f"a step of a {NETWORK} (64-64-10)", "columns": columns, "rows": rows}]}


def _compared(workers: int, repetitions: int) -> list[float]:
    """Return the medians of both ways' microseconds, their ratio with its least and most, and what a worker adds."""
    job, device = Job(NETWORK, BATCH), torch.device("cpu")
    ways = plain_loop(job, workers, device), virtual_workers(job, workers, device)
    runs = []
    for turn in range(-WARM_UP, repetitions):
        taken = [_microseconds(way) for way in (ways if turn % 2 else ways[::-1])]
        runs += [taken if turn % 2 else taken[::-1]] if turn >= 0 else []
    plain, ours = (median(way) for way in zip(*runs))
    ratios = [own / theirs for theirs, own in runs]
    figures = [round(figure, 2) for figure in (median(ratios), min(ratios), max(ratios))]
    return [round(plain), round(ours), *figures, round((ours - plain) / workers)]


def _microseconds(step: Step) -> float:
    begin = time.perf_counter()
    for _ in range(RUN):
        step()
    return (time.perf_counter() - begin) / RUN * 1e6
