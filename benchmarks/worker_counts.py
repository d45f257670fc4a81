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
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers import Group, Trainer
from trainers.zoo import ResNet

REPETITIONS = 5
STEPS, WARM_UP = 2, 2
COUNTS = {"cpu": (1, 2, 4, 8), "gpu": (1, 2, 4, 8, 16)}
BATCH = {"cpu": 16, "gpu": 128}
MOST_GROWTH = 1.05
"""Of a GPU's memory from 1 worker to the most."""
PATIENCE = 300.0

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
    rates = [count * seen[way]["batch"] / seen[way]["seconds"] for way in ("plain", "workers", "processes")]
    megabytes = [seen[way]["memory"] / 2**20 for way in ("workers", "processes")]
    return [count, *rates, rates[1] / rates[0], rates[1] / rates[2], *megabytes]


def _compare(count: int, device: str, repetitions: int) -> Figures:
    """Let the three ways take turns."""
    with ExitStack() as stack:
        ways = {way: stack.enter_context(_running(way, count, device)) for way in ("plain", "workers", "processes")}
        told: dict[str, list[Figures]] = {way: [] for way in ways}
        for repetition in range(repetitions):
            for way in list(ways) if repetition % 2 else reversed(list(ways)):
                told[way].append(_steps(ways[way]))
    return {
        way: {
            "seconds": median(entry["seconds"] for entry in entries),
            "memory": entries[-1]["memory"],
            "batch": entries[-1]["batch"],
        }
        for way, entries in told.items()
    }


@contextmanager
def _running(way: str, count: int, device: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Start a way's processes; end them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.worker_counts", way, str(count), device, folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        processes = [
            subprocess.Popen(
                [*command, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
            for rank in range(count if way == "processes" else 1)
        ]
        try:
            for process in processes:
                _heard(process)
            yield processes
        finally:
            for process in processes:
                process.kill()
                process.communicate()


def _steps(processes: Sequence[subprocess.Popen[str]]) -> Figures:
    """Let all do their steps at once; return the longest time and all their memory."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [_heard(process) for process in processes]
    return {
        "seconds": max(entry["seconds"] for entry in told),
        "memory": sum(entry["memory"] for entry in told),
        "batch": told[0]["batch"],
    }


def _heard(process: subprocess.Popen[str]) -> Figures:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"process {process.pid} ended; see its messages above")
    return dict(json.loads(line))


# From here on: inside a process.


class Job:
    """A ResNet of 2.8 million parameters on pictures of 32 x 32."""

    def __init__(self, batch: int) -> None:
        self.batch_size = batch

    def model(self) -> nn.Module:
        return ResNet((2, 2, 2, 2), 32)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def dataset(self, train: bool) -> None:
        return None


def _workers(job: Job, count: int, device: torch.device, batch: tuple[Tensor, Tensor]) -> Callable[[], Any]:
    trainer = Trainer(job, count, Group.alone(), device)
    return lambda: trainer.step([batch] * count)


def _plain(job: Job, count: int, device: torch.device, batch: tuple[Tensor, Tensor]) -> Callable[[], Any]:
    torch.use_deterministic_algorithms(True)
    model = job.model().to(device)
    optimizer = job.optimizer(model)
    pictures, labels = batch[0].to(device), batch[1].to(device)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(count):
            (functional.cross_entropy(model(pictures), labels) / count).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _process(
    job: Job, count: int, device: torch.device, batch: tuple[Tensor, Tensor], rank: int, folder: str
) -> Callable[[], Any]:
    from torch.nn.parallel import DistributedDataParallel

    torch.use_deterministic_algorithms(True)
    store = f"file://{Path(folder) / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=count)
    model = DistributedDataParallel(job.model().to(device))
    optimizer = job.optimizer(model)
    pictures, labels = batch[0].to(device), batch[1].to(device)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(pictures), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _serve(way: str, count: int, kind: str, folder: str, rank: int) -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(1)
    device = torch.device(kind)
    if kind == "cpu" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # all share one device: a core
    job = Job(BATCH["cpu" if kind == "cpu" else "gpu"])
    batch = (torch.randn(job.batch_size, 3, 32, 32), torch.randint(10, (job.batch_size,)))
    if way == "processes":
        step = _process(job, count, device, batch, rank, folder)
    else:
        step = (_workers if way == "workers" else _plain)(job, count, device, batch)
    for _ in range(WARM_UP):
        step()
    print(json.dumps({}), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        for _ in range(STEPS):
            step()
        _finish(device)
        seconds = (time.perf_counter() - begin) / STEPS
        print(json.dumps({"seconds": seconds, "memory": _memory(device), "batch": job.batch_size}), flush=True)


def _finish(device: torch.device) -> None:
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


def _memory(device: torch.device) -> int:
    """Return bytes; see the module."""
    if device.type != "cpu":
        return int(torch.get_device_module(device).max_memory_allocated())
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in rollup if line.startswith("Pss:"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        print(json.dumps(main(), indent=1))
