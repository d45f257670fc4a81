"""What a steady step asks of a device, with a trainer and with stock DDP."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch_rig
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from trainers import Group, Trainer
from trainers.device.device_streams import DeviceCopies
from trainers.messages import torch_backend
from trainers.messages.torch_backend import DeviceChannel, TorchTransport
from trainers.reduce.device_reduce import Communicators, DeviceReducers
from trainers.zoo import MLP, ResNet

WARM = 5
"""Steps until all is as later: the first shows the buckets, the first four are looked at closely."""

MODELS: dict[str, Any] = {
    "perceptron": lambda: nn.Sequential(nn.Flatten(), MLP(192, (64, 64), 10)),
    "ResNet-50": lambda: ResNet((3, 4, 6, 3), 64, classes=10, block="bottleneck"),
}


class Task:
    """A network under SGD with momentum."""

    batch_size, seed = 4, 3

    def __init__(self, model: str) -> None:
        self._model = model

    def model(self) -> nn.Module:
        network: nn.Module = MODELS[self._model]()
        return network

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def dataset(self, train: bool) -> None:
        return None


def _batches(count: int) -> list[tuple[Tensor, Tensor]]:
    generator, device = torch.Generator().manual_seed(1), torch.device("rig", torch.accelerator.current_device_index())
    drawn = [
        (torch.randn(4, 3, 8, 8, generator=generator), torch.randint(10, (4,), generator=generator))
        for _ in range(count)
    ]
    return [(pictures.to(device), labels.to(device)) for pictures, labels in drawn]


def of_trainer(model: str, workers: int, schedule: str = "prompt") -> dict[str, int]:
    """Counts of a step of one trainer for so many virtual workers, whose batches lie on the device."""
    torch_rig.schedule(schedule)
    trainer, batches = Trainer(Task(model), workers, Group.alone(), "rig"), _batches(workers)
    for _ in range(WARM):
        trainer.step(batches)
    torch_rig.counts()
    trainer.step(batches)
    return _counted() | {"bytes of a gradient": _bytes_of(trainer.model), "pinned bytes": torch_rig.pinned_bytes()}


def of_members(rank: int, size: int, folder: str, model: str, workers: int) -> dict[str, int]:
    """Counts of a step of one of several trainers with so many workers together, which send from device to device."""
    torch_rig.schedule("prompt")
    torch.accelerator.set_device_index(rank)
    store = f"file://{folder}/store"
    dist.init_process_group("cpu:gloo", init_method=store, rank=rank, world_size=size, timeout=timedelta(seconds=60))
    group = Group.over(TorchTransport(timeout=60))
    reducer = DeviceReducers(Communicators())
    trainer = Trainer(Task(model), workers, group, torch.device("rig", rank), reducer=reducer)
    batches = _batches(len(trainer.workers))
    with trainer.reducing():
        for _ in range(WARM):
            trainer.step(batches)
        asked = sleeps()
        torch_rig.counts()
        trainer.step(batches)
        counted = _counted() | {"bytes of a gradient": _bytes_of(trainer.model), "sleeps": len(asked)}
        counted["kernels after the last sleep"] = counted["kernels"] - asked[-1]
        group.barrier()
    return counted


def hooks(model: str, workers: int) -> list[list[int]]:
    """Hooks on the gradients of a trainer's parameters, before its first step and after it; parameters and buckets."""
    torch_rig.schedule("prompt")
    trainer, told = Trainer(Task(model), workers, Group.alone(), "rig"), list[list[int]]()
    for _ in range(2):
        parameters = list(trainer.model.parameters())
        found = sum(len(parameter._post_accumulate_grad_hooks or ()) for parameter in parameters)  # type: ignore[attr-defined]
        told.append([found, len(parameters), len(trainer.updates[0].layout.buckets)])
        trainer.step(_batches(workers))
    return told


def of_copies(parameters: int, kinds: int) -> dict[str, int]:
    """Counts of so many gradients of each of so many types on their way to pinned memory, and how many come wrong."""
    torch_rig.schedule("prompt")
    device, sizes = torch.device("rig", 0), [index % 5 + 1 for index in range(parameters)]
    gradients, views = list[Tensor](), list[Tensor]()
    for dtype in (torch.float32, torch.float64, torch.bfloat16)[:kinds]:
        landing = torch.empty(sum(sizes), dtype=dtype, pin_memory=True)
        gradients += [torch.full((size,), size * 2.0, dtype=dtype, device=device) for size in sizes]
        views += landing.split(sizes)
    copies = DeviceCopies(device)
    torch_rig.counts()
    copies.take(0.5, gradients, views)
    asked = _counted()
    copies.mark()()
    return asked | {"wrong": sum(bool((view != view.numel()).any()) for view in views)}


def sleeps() -> list[int]:
    """From now on, the kernels that had been asked for at the end of each wait of the host for messages."""
    asked: list[int] = []
    settle = DeviceChannel.settle

    def noted(channel: DeviceChannel) -> float:
        seconds = settle(channel)
        asked.append(torch_rig.counts(False)["kernels"])
        return seconds

    vars(torch_backend)["DeviceChannel"].settle = noted
    return asked


def of_ddp(model: str) -> dict[str, int]:
    """Counts of a step of stock DDP in one process, which reads its loss."""
    torch_rig.schedule("prompt")
    task, (batch,) = Task(model), _batches(1)
    with TemporaryDirectory() as folder:
        store = f"file://{Path(folder) / 'store'}"
        dist.init_process_group(
            "cpu:gloo,rig:rigccl", init_method=store, rank=0, world_size=1, timeout=timedelta(seconds=60)
        )
        network = DistributedDataParallel(task.model().to("rig"))
        rule = task.optimizer(network)
        for _ in range(WARM):
            _ddp_step(network, rule, batch)
        torch_rig.counts()
        _ddp_step(network, rule, batch)
        counted = _counted()
        dist.destroy_process_group()
    return counted


def of_a_loop(model: str) -> dict[str, int]:
    """Counts of a plain step, which reads its loss."""
    torch_rig.schedule("prompt")
    task, (batch,) = Task(model), _batches(1)
    network = task.model().to("rig")
    rule = task.optimizer(network)
    for _ in range(WARM):
        _ddp_step(network, rule, batch)
    torch_rig.counts()
    _ddp_step(network, rule, batch)
    return _counted()


def _ddp_step(network: nn.Module, rule: torch.optim.Optimizer, batch: tuple[Tensor, Tensor]) -> float:
    rule.zero_grad()
    loss = cross_entropy(network(batch[0]), batch[1])
    loss.backward()  # type: ignore[no-untyped-call]
    rule.step()
    return float(loss)


def _counted() -> dict[str, int]:
    return {name: number for name, number in torch_rig.counts().items() if number}


def _bytes_of(model: nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
