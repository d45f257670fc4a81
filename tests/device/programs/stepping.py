"""Steps of a trainer on a device that is not the first, against the CPU's."""

from __future__ import annotations

import gc
from typing import Any

import torch
import torch_rig
from torch import Tensor, nn

from trainers import Diverged, Group, Trainer
from trainers.device.device_memory import give_freed_memory_back

STEPS = 4


class SharedMemory(nn.Module):
    """The gradients of two parameters are views of one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.tall = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(4, 2))
        self.begin, self.end = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.end(torch.relu(self.begin(inputs)) * (self.wide.reshape(8) + self.tall.reshape(8)))


def _perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)
    )


def _convolutions() -> nn.Module:
    tail = (nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 3, padding=1), *tail)


class PartlyUsed(nn.Module):
    """Whose first layer half of the workers do not use in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.begin, self.seldom, self.end = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.end(self.begin(inputs))


MODELS = {"perceptron": _perceptron, "convolutions": _convolutions, "shared": SharedMemory, "partly used": PartlyUsed}


class Task:
    """A network under SGD with momentum."""

    batch_size, seed = 6, 3

    def __init__(self, model: str) -> None:
        self._model = model

    def model(self) -> nn.Module:
        return MODELS[self._model]()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def dataset(self, train: bool) -> None:
        return None


def batch(seed: int) -> tuple[Tensor, Tensor]:
    """Return six samples and their classes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 4, generator=generator), torch.randint(0, 3, (6,), generator=generator)


def trained(model: str, workers: int, device: str) -> tuple[list[list[float]], list[Tensor]]:
    """Return the losses of each step, and the parameters and momenta."""
    trainer = Trainer(Task(model), workers, Group.alone(), device)
    taken = [trainer.step([batch(10 * step + worker) for worker in range(workers)]) for step in range(STEPS)]
    losses = [list(step) for step in taken]
    momenta = [state["momentum_buffer"] for state in trainer.optimizer.state.values()]
    return losses, [tensor.detach().cpu() for tensor in (*trainer.model.parameters(), *momenta)]


def diverging(told: str) -> list[str]:
    """What the steps before, of, and after one without a finite loss say, and then the snapshot."""
    torch_rig.schedule("both-late")
    trainer = Trainer(Task("perceptron"), 2, Group.alone(), torch.device("rig", 0))
    (inputs, labels), said = batch(1), []

    def step(factor: float = 1.0) -> None:
        trainer.step([batch(0), (inputs * factor, labels)])

    for act in (
        step,
        lambda: step(float("nan")),
        {"step": step, "snapshot": trainer.snapshot, "settle": trainer.settle, "move": lambda: _move(trainer)}[told],
    ):
        try:
            act()
            said.append("")
        except Diverged as error:
            said.append(str(error))
    return said


def _move(trainer: Trainer) -> None:
    """From this rank to itself."""
    from mpi4py import MPI  # starts it

    from trainers.job import resize

    resize.resize(trainer, MPI.COMM_SELF, (0,), (0,), 10, 10.0)


def gone_on_after(workers: int, device: str, schedule: str = "prompt") -> dict[str, Any]:
    """Train, keep a snapshot, diverge, and go on from the snapshot in the same trainer.

    Return the steps that were taken when the divergence was told, whether the snapshot is of finite numbers then, and
    the losses and the weights at the end, as bytes.
    """
    torch_rig.schedule(schedule)
    trainer, batches = Trainer(Task("perceptron"), workers, Group.alone(), device), [batch(n) for n in range(workers)]
    trainer.step(batches)
    kept, told = trainer.snapshot(), -1
    assert kept is not None
    inputs, labels = batches[-1]
    try:
        trainer.step([*batches[:-1], (inputs * float("nan"), labels)])
        trainer.step(batches)
    except Diverged:
        told = trainer.steps
    finite = all(bool(torch.as_tensor(value).isfinite().all()) for value in kept.parameters.values())
    trainer.restore(kept)
    losses = [list(trainer.step([batch(10 * step + n) for n in range(workers)])) for step in range(STEPS)]
    weights = [parameter.detach().cpu().numpy().tobytes().hex() for parameter in trainer.model.parameters()]
    return {"told": told, "finite": finite, "losses": losses, "weights": weights}


def epoch_s_loss(device: str) -> float:
    """Return the mean loss of an epoch."""
    trainer = Trainer(Task("perceptron"), 2, Group.alone(), device)
    for step in range(STEPS):
        trainer.step([batch(10 * step + worker) for worker in range(2)])
    return trainer.finish_epoch({})["loss"]


def different(model: str, workers: int, schedules: list[str], spills: bool = True) -> list[str]:
    """Return the schedules in which the second device, the only one that is allowed, has not the CPU's bits.

    spills: nobody knows how much room is on the device, so gradients leave it.
    """
    if spills:
        del torch_rig.device_module.mem_get_info
    losses, tensors = trained(model, workers, "cpu")
    torch.accelerator.set_device_index(1)
    found = []
    for schedule in schedules:
        torch_rig.schedule(schedule)
        others, there = trained(model, workers, "rig:1")
        if others != losses or not all(map(torch.equal, tensors, there)):
            found.append(schedule)
    return found


def memory_after(jobs: int) -> list[list[int]]:
    """Train and let go of so many jobs; return the bytes of the device and of pinned memory after each."""
    figures = []
    for _ in range(jobs):
        trained("perceptron", 2, "rig")
        gc.collect()
        give_freed_memory_back(torch.device("rig", 0))
        figures.append([torch_rig.memory(0)["used"], torch_rig.pinned_bytes()])
    return figures


def gradients_are_aligned() -> bool:
    """Whether each gradient begins where a tensor of its own would, so that kernels add it in the same order."""
    trainer = Trainer(Task("perceptron"), 2, Group.alone(), "rig")
    trainer.step([batch(0), batch(1)])
    gradients = [parameter.grad for parameter in trainer.model.parameters()]
    return all(gradient is not None and gradient.data_ptr() % 512 == 0 for gradient in gradients)
