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

from benchmarks.networks_to_step import STEPPED
from trainers import Group, Trainer
from trainers.task.task_options import StepOptions

NETWORKS = ("cnn", "resnet", "mlp")

Step = Callable[[], Any]
Batches = list[tuple[Tensor, Tensor]]


class Job:
    """A task: one of STEPPED on `batch_size` samples.

    autocast: as a task's. placed: where the model is made and the batches lie.
    """

    def __init__(
        self, network: str, batch_size: int, autocast: str | None = None, placed: torch.device | None = None
    ) -> None:
        self.name, self.batch_size, self.autocast = network, batch_size, autocast
        self._network, self._placed = STEPPED[network], placed or torch.device("cpu")

    def model(self) -> nn.Module:
        """Return the network."""
        with self._placed:
            return self._network.model()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return what costs the least, so that other costs show."""
        return torch.optim.SGD(model.parameters(), 0.01)

    def dataset(self, train: bool) -> Any:
        """Return nothing: batches are in memory."""
        return None

    def batches(self, workers: int) -> Batches:
        """Return the batches of one step, one a worker."""
        generator = torch.Generator().manual_seed(0)
        drawn = [
            (
                self._network.inputs(self.batch_size, generator),
                torch.randint(10, (self.batch_size,), generator=generator),
            )
            for _ in range(workers)
        ]
        return [(input.to(self._placed), target.to(self._placed)) for input, target in drawn]

    def loss_of(self, model: nn.Module, batch: tuple[Tensor, Tensor], device: torch.device) -> Tensor:
        """Return the loss as a person would write it."""
        with StepOptions.of(self).precision(device):
            return functional.cross_entropy(model(batch[0].to(device)), batch[1].to(device))


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
        for batch in data:
            loss = job.loss_of(model, batch, device)
            (loss / workers).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        optimizer.step()
        return [loss.item() for loss in losses]

    return step


def stock_ddp(job: Job, workers: int, device: torch.device, rank: int, folder: Path, backend: str = "gloo") -> Step:
    """A step of one worker under DDP, beside the processes of the others. folder: where they meet."""
    from torch.nn.parallel import DistributedDataParallel

    torch.use_deterministic_algorithms(True)
    if not torch.distributed.is_initialized():
        store = f"file://{folder / 'store'}"
        torch.distributed.init_process_group(backend, init_method=store, rank=rank, world_size=workers)
    model = DistributedDataParallel(job.model().to(device))
    optimizer = job.optimizer(model)
    batch = job.batches(workers)[rank]

    def step() -> float:
        optimizer.zero_grad()
        loss = job.loss_of(model, batch, device)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item()

    return step


def device_backend(device: torch.device) -> str:
    """What joins devices of this kind as NCCL joins GPUs, one a process; messages of the host go over gloo."""
    made: Any = torch.distributed
    return f"cpu:gloo,{device.type}:{made.get_default_backend_for_device(device)}"
