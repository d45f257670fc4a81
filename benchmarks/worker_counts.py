"""One process with N virtual workers against one process a worker, on one device: throughput and memory, N = 1 .. 16.

The comparison of EasyScale's Figures 12 and 13 (SC'23, 5.1). On a GPU if torch sees one, else on one core of the
processor. Needs torch, NumPy and h5py alone if it is called as `python -m benchmarks.worker_counts`.

Memory: on a GPU what torch's allocator held at most, so a process's own context, which only the processes multiply, is
not counted; on a processor the proportional share (PSS) after a step. A plain loop over N micro-batches, which adds up
their gradients, shows what switching between workers and keeping their gradients apart costs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.turns import Told, Way, in_turns, running

REPETITIONS = 5
COUNTS = {"cpu": (1, 2, 4, 8), "gpu": (1, 2, 4, 8, 16)}
BATCH = {"cpu": 16, "gpu": 128}
NETWORK = "resnet"
MOST_GROWTH = 1.05
"""The most that a GPU's memory may grow by from 1 worker to the most."""

Figures = dict[str, Any]


def main(repetitions: int = 0) -> Figures:
    """Measure; return {"bars": [...], "tables": [...], "skipped": [...]}."""
    device = _device()
    kind = "cpu" if device == "cpu" else "gpu"
    seen = {count: _compare(count, device, repetitions or REPETITIONS) for count in COUNTS[kind]}
    columns = ["workers", "plain loop", "one process", "a process a worker"]
    columns += ["over plain loop", "over processes", "MiB one process", "MiB processes"]
    table = {"title": f"samples a second on {device}", "columns": columns, "rows": [_row(n, seen[n]) for n in seen]}
    first, last = (seen[count]["workers"]["memory"] / 2**20 for count in (min(seen), max(seen)))
    if kind == "cpu":
        return {"bars": [], "tables": [table], "skipped": ["memory of a GPU: torch sees none here"]}
    bar = {"name": f"device memory of {max(seen)} workers over 1", "value": last / first, "bar": f"<= {MOST_GROWTH}"}
    return {"bars": [{**bar, "ok": last <= MOST_GROWTH * first}], "tables": [table], "skipped": []}


def _device() -> str:
    return str(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else "cpu"


def _row(count: int, seen: Figures) -> list[Any]:
    samples = count * BATCH[seen["kind"]]
    rates = [samples / seen[name]["seconds"] for name in ("plain", "workers", "processes")]
    megabytes = [seen[name]["memory"] / 2**20 for name in ("workers", "processes")]
    return [count, *rates, rates[1] / rates[0], rates[1] / rates[2], *megabytes]


def _compare(count: int, device: str, repetitions: int) -> Figures:
    """Let the three ways take turns."""
    kind = "cpu" if device == "cpu" else "gpu"
    with ExitStack() as stack:
        stack.enter_context(_one_core(device))
        ways = {
            name: stack.enter_context(way(started, NETWORK, BATCH[kind], count, device))
            for name, started in (("plain", "plain"), ("workers", "workers"), ("processes", "ddp"))
        }
        told = in_turns(ways, repetitions)
    return {"kind": kind, **{name: figures(steps) for name, steps in told.items()}}


def figures(steps: Sequence[Sequence[Told]]) -> dict[str, float]:
    """Return a step's seconds, until the last member is done, and the memory of all."""
    seconds = median(max(member["wall"] for member in step) for step in steps)
    return {"seconds": seconds, "memory": sum(member["memory"] for member in steps[-1])}


@contextmanager
def _one_core(device: str) -> Iterator[None]:
    """Let what is started share one core, as it would a GPU, if there is none."""
    if device != "cpu" or not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def way(name: str, network: str, batch: int, count: int, device: str) -> Iterator[Way]:
    """Start the processes of a way (see `benchmarks.timed_processes`): one, or one a worker."""
    members = 1 if name in ("plain", "workers") else count
    words = [sys.executable, "-m", "benchmarks.timed_processes", name, network, str(batch), str(count)]

    def commands(folder: Path) -> list[list[str]]:
        places = [f"{device}:{member}" if "devices" in name else device for member in range(members)]
        return [[*words, place, str(folder), str(member)] for member, place in enumerate(places)]

    with running(commands, members, {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}) as started:
        yield started


if __name__ == "__main__":
    print(json.dumps(main(), indent=1))
