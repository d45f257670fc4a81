"""The processes that `benchmarks.consistency` times: alone (`child`), and as ranks under mpiexec (`ring`, `step`).

python -m benchmarks.timed_processes child WAY NETWORK
mpiexec -n M python -m mpi4py -m benchmarks.timed_processes ring MB N REPETITIONS
mpiexec -n N python -m mpi4py -m benchmarks.timed_processes step NETWORK REPETITIONS FOLDER
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers import Group, Trainer
from trainers.zoo import CNN, MLP, ResNet

NETWORKS = ("cnn", "resnet", "mlp")
WORKERS = 4
BATCH = 32
WARM_UP = 2


class Job:
    """A task: one of NETWORKS on pictures of 32 x 32."""

    batch_size = BATCH

    def __init__(self, network: str) -> None:
        self.name = network

    def model(self) -> nn.Module:
        """Return the network: 1.6, 2.8 or 4.2 million parameters."""
        if self.name == "cnn":
            return CNN(3, (64, 128, 256, 512), 10)
        if self.name == "resnet":
            return ResNet((2, 2, 2, 2), 32)
        return MLP(3 * 32 * 32, (1024, 1024), 10)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return what costs the least, so that other costs show."""
        return torch.optim.SGD(model.parameters(), 0.01)

    def dataset(self, train: bool) -> Any:
        """Return nothing: batches are in memory."""
        return None


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    """The batches of one step."""
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(BATCH, 3, 32, 32, generator=generator), torch.randint(10, (BATCH,), generator=generator))
        for _ in range(count)
    ]


def virtual_workers(network: str) -> Callable[[], Any]:
    """A step of all virtual workers in this process."""
    trainer, data = Trainer(Job(network), WORKERS, Group.alone()), batches(WORKERS)
    return lambda: trainer.step(data)


def plain_loop(network: str) -> Callable[[], Any]:
    """A step of a loop over as many micro-batches, whose gradients are accumulated, as a person would write it."""
    torch.use_deterministic_algorithms(True)
    job, data = Job(network), batches(WORKERS)
    model = job.model()
    optimizer = job.optimizer(model)

    def step() -> list[float]:
        optimizer.zero_grad()
        losses = []
        for input, target in data:
            loss = functional.cross_entropy(model(input), target)
            (loss / WORKERS).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.item())
        optimizer.step()
        return losses

    return step


def child(way: str, network: str) -> None:
    """Do a step for each line of the input; tell its wall and processor seconds and the memory beyond the start's."""
    torch.set_num_threads(1)
    before = psutil.Process().memory_info().rss
    step = {"workers": virtual_workers, "plain": plain_loop}[way](network)
    for _ in range(WARM_UP):
        step()
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        print(json.dumps({"wall": wall, "cpu": cpu, "peak": peak}), flush=True)


def ring(megabytes: int, workers: int, repetitions: int) -> None:
    """Sum vectors over the virtual ring and with MPI's own Allreduce, in turns."""
    from mpi4py import MPI

    from trainers import blocks_of
    from trainers.reduce.ring import VirtualRing

    world = MPI.COMM_WORLD
    with Group.form(world, range(world.size), 10) as group:
        virtual = VirtualRing(blocks_of(workers, group.size), group.index, group.neighbours())
        vectors = [torch.zeros(megabytes * 2**20 // 4) for _ in group.block(workers)]

        def allreduce() -> None:
            for vector in vectors[1:]:
                vectors[0].add_(vector)
            world.Allreduce(MPI.IN_PLACE, vectors[0].numpy())

        seconds = _in_turns(group, repetitions, {"ours": lambda: virtual.sum(vectors), "theirs": allreduce})
    if world.rank == 0:
        print(json.dumps(seconds), flush=True)


def step(network: str, repetitions: int, folder: str) -> None:
    """Train steps of N workers on N ranks, and the same under DDP over gloo, in turns."""
    import torch.distributed as dist
    from mpi4py import MPI
    from torch.nn.parallel import DistributedDataParallel

    world = MPI.COMM_WORLD
    store = f"file://{Path(folder) / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=world.rank, world_size=world.size)
    data = batches(world.size)[world.rank]
    with Group.form(world, range(world.size), 10) as group:
        trainer, job = Trainer(Job(network), world.size, group), Job(network)
        model = DistributedDataParallel(job.model())
        optimizer = job.optimizer(model)

        def ddp() -> float:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(data[0]), data[1])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return loss.item()

        seconds = _in_turns(group, repetitions, {"ours": lambda: trainer.step([data]), "theirs": ddp})
    dist.destroy_process_group()
    if world.rank == 0:
        print(json.dumps(seconds), flush=True)


def _in_turns(group: Group, repetitions: int, ways: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
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


def _take_part() -> None:
    """Take the part that the arguments name."""
    torch.set_num_threads(1)
    part, *arguments = sys.argv[1:]
    if part == "child":
        child(*arguments)
    elif part == "ring":
        ring(*map(int, arguments))
    else:
        step(arguments[0], int(arguments[1]), arguments[2])


if __name__ == "__main__":
    _take_part()
