"""The processes that the benchmarks of consistency time.

python -m benchmarks.timed_processes WAY NETWORK BATCH N DEVICE FOLDER [RANK]
    WAY: workers, plain; of as many processes as workers: ddp, ddp-devices, devices, packed
mpiexec -n N python -m mpi4py -m benchmarks.timed_processes ranks NETWORK BATCH N DEVICE FOLDER
mpiexec -n M python -m mpi4py -m benchmarks.timed_processes ring MB N REPETITIONS

The first two do steps as `benchmarks.turns` asks.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.turns import PATIENCE_SECONDS, Told, serve
from benchmarks.ways_to_step import Job, Step, device_backend, plain_loop, stock_ddp, virtual_workers
from trainers import Group, Trainer
from trainers.device.device_streams import select
from trainers.repeatable import determinism

WARM_UP = 2


def alone(way: str, job: Job, workers: int, device: torch.device, folder: Path) -> None:
    """All workers of a step in this process."""
    before = _resident()
    _serve((virtual_workers if way == "workers" else plain_loop)(job, workers, device), device, folder, 0, before)


def beside(job: Job, workers: int, device: torch.device, folder: Path, rank: int) -> None:
    """One worker under stock DDP, in step with the others."""
    before = _resident()
    step = stock_ddp(job, workers, device, rank, folder)
    _serve(step, device, folder, rank, before, torch.distributed.barrier)
    torch.distributed.destroy_process_group()


def on_devices(way: str, job: Job, workers: int, device: torch.device, folder: Path, rank: int) -> None:
    """One worker on a device of its own, whose gradients go from device to device; with fleet or under stock DDP."""
    from trainers.messages.torch_backend import TorchTransport
    from trainers.reduce.device_reduce import Communicators, DeviceReducers

    select(device)
    before = _resident()
    store, made = f"file://{folder / 'store'}", torch.distributed
    backend = device_backend(device) if way == "ddp-devices" else "cpu:gloo"
    made.init_process_group(backend, init_method=store, rank=rank, world_size=workers)
    with Group.over(TorchTransport(timeout=PATIENCE_SECONDS)) as group:
        if way == "ddp-devices":
            _serve(stock_ddp(job, workers, device, rank, folder), device, folder, rank, before, group.barrier)
        else:
            trainer = Trainer(job, workers, group, device, reducer=DeviceReducers(Communicators()))
            data = job.batches(workers)[rank : rank + 1]
            with trainer.reducing():
                _serve(lambda: trainer.step(data), device, folder, rank, before, group.barrier)
    made.destroy_process_group()


def ranks(job: Job, workers: int, device: torch.device, folder: Path) -> None:
    """One virtual worker on each rank, in step with the others."""
    from mpi4py import MPI

    world, before = MPI.COMM_WORLD, _resident()
    with Group.form(world, range(world.size), 10) as group:
        step = virtual_workers(job, workers, device, group)
        _serve(step, device, folder, world.rank, before, group.barrier)


def _serve(
    step: Step, device: torch.device, folder: Path, member: int, before: int, meet: Callable[[], Any] = lambda: None
) -> None:
    """Tell of each step its wall and processor seconds, and the memory; `meet` comes first and is not counted."""

    def timed() -> Told:
        meet()
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        _finish(device)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {"wall": wall, "cpu": cpu, "peak": _peak() - before, "memory": _memory(device)}

    for _ in range(WARM_UP):
        step()
    serve(folder, member, timed)


def _finish(device: torch.device) -> None:
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _memory(device: torch.device) -> int:
    """Return bytes: at most, on a GPU, of torch's allocator; on a processor the proportional share (PSS) now."""
    if device.type != "cpu":
        return int(torch.get_device_module(device).max_memory_allocated())
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in rollup if line.startswith("Pss:"))


def ring(megabytes: int, workers: int, repetitions: int) -> None:
    """Sum vectors over the virtual ring and with MPI's own Allreduce, in turns."""
    from mpi4py import MPI

    from trainers import blocks_of
    from trainers.reduce.ordered_reduce import VirtualRing

    world = MPI.COMM_WORLD
    with Group.form(world, range(world.size), 10) as group:
        virtual = VirtualRing(blocks_of(workers, group.size), group.index, group.neighbours())
        vectors = [torch.zeros(megabytes * 2**20 // 4) for _ in group.block(workers)]

        def allreduce() -> None:
            for vector in vectors[1:]:
                vectors[0].add_(vector)
            world.Allreduce(MPI.IN_PLACE, vectors[0].numpy())

        seconds = _sums_in_turns(group, repetitions, {"ours": lambda: virtual.sum(vectors), "theirs": allreduce})
    if world.rank == 0:
        print(json.dumps(seconds), flush=True)


def _sums_in_turns(group: Group, repetitions: int, ways: dict[str, Step]) -> dict[str, list[float]]:
    """Return, on the master, each way's seconds from a common start to the last member's end; the order alternates."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(-WARM_UP, repetitions):
        for name in list(ways) if repetition % 2 else reversed(list(ways)):
            group.barrier()
            begin = time.perf_counter()
            ways[name]()
            gathered = group.gather_trees({"seconds": time.perf_counter() - begin})
            if repetition >= 0 and group.is_master:
                seconds[name].append(max(member["seconds"] for member in gathered))
    return seconds


def _take_part(part: str, *words: str) -> None:
    """Take the part that the arguments name."""
    torch.set_num_threads(1)
    if part == "ring":
        return ring(*map(int, words))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    network, batch, workers, kind, folder, *rank = words
    device = torch.device(kind)
    if device.type != "cpu":  # as a trainer does
        determinism.pin(device=device)
    job = Job(network, int(batch), placed=device)
    if part == "packed":
        _serve(plain_loop(job, 1, device), device, Path(folder), int(rank[0]), _resident())
    elif "devices" in part:
        on_devices(part, job, int(workers), device, Path(folder), int(rank[0]))
    elif part == "ddp":
        beside(job, int(workers), device, Path(folder), int(rank[0]))
    elif part == "ranks":
        ranks(job, int(workers), device, Path(folder))
    else:
        alone(part, job, int(workers), device, Path(folder))
    return None


if __name__ == "__main__":
    _take_part(*sys.argv[1:])
