"""A training step of N workers, each way that the benchmarks compare: virtual workers, a plain loop, stock DDP.

Needs torch and NumPy alone, so that a machine with a GPU runs it from a plain checkout.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers import Group, Trainer
from trainers.zoo import CNN, MLP, ResNet

NETWORKS = ("cnn", "resnet", "mlp")

Step = Callable[[], Any]
Batches = list[tuple[Tensor, Tensor]]


class Job:
    """A task: one of NETWORKS on `batch_size` pictures of 32 x 32."""

    def __init__(self, network: str, batch_size: int) -> None:
        self.name = network
        self.batch_size = batch_size

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

    def batches(self, workers: int) -> Batches:
        """Return the batches of one step, one a worker."""
        generator = torch.Generator().manual_seed(0)
        shape = (self.batch_size, 3, 32, 32)
        return [
            (torch.randn(shape, generator=generator), torch.randint(10, shape[:1], generator=generator))
            for _ in range(workers)
        ]


def virtual_workers(job: Job, workers: int, device: torch.device, group: Group | None = None) -> Step:
    """A step of this member's virtual workers."""
    group = group or Group.alone()
    trainer, block = Trainer(job, workers, group, device), group.block(workers)
    data = job.batches(workers)[block.start : block.stop]
    return lambda: trainer.step(data)


def plain_loop(job: Job, workers: int, device: torch.device) -> Step:
    """A step of a loop over as many micro-batches, whose gradients are accumulated, as a person would write it."""
    torch.use_deterministic_algorithms(True)
    model, data = job.model().to(device), job.batches(workers)
    optimizer = job.optimizer(model)

    def step() -> list[float]:
        optimizer.zero_grad()
        losses = []
        for input, target in data:
            loss = functional.cross_entropy(model(input.to(device)), target.to(device))
            (loss / workers).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        optimizer.step()
        return [loss.item() for loss in losses]

    return step


def stock_ddp(job: Job, workers: int, device: torch.device, rank: int, folder: Path) -> Step:
    """A step of one worker under DDP over gloo, beside the processes of the others. folder: where they meet."""
    from torch.nn.parallel import DistributedDataParallel

    torch.use_deterministic_algorithms(True)
    store = f"file://{folder / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=workers)
    model = DistributedDataParallel(job.model().to(device))
    optimizer = job.optimizer(model)
    input, target = job.batches(workers)[rank]

    def step() -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(input.to(device)), target.to(device))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    return step
