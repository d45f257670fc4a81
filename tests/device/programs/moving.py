"""A job moves to one more trainer. Arguments: folder, way ("host" or "device"). Under mpiexec with 3 ranks.

Each has its device, and writes what the move has asked of that, and what its network is afterwards.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import torch
import torch_rig
from mpi4py import MPI
from torch import nn

from trainers import Group, Trainer
from trainers.job.resize import joining, resize
from trainers.reduce.device_reduce import Communicators, DeviceReducers
from trainers.reduce.ordered_reduce import OrderedReduce, ReducerOf
from trainers.zoo import MLP

OLD, NEW = (0, 1), (0, 1, 2)
WORKERS, STEPS, SECONDS = 3, 3, 60.0


class Task:
    """A perceptron of 1.5 MB under SGD with momentum."""

    batch_size, seed = 4, 3

    def model(self) -> nn.Module:
        return MLP(192, (512, 512), 10)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def dataset(self, train: bool) -> None:
        return None


def _step(trainer: Trainer, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(trainer.steps)
    batches = [(torch.randn(4, 192, generator=generator), torch.arange(4)) for _ in range(WORKERS)]
    mine = [batches[worker.rank] for worker in trainer.workers]
    trainer.step([(inputs.to(device), labels.to(device)) for inputs, labels in mine])


def _digest(trainer: Trainer) -> str:
    """Of the weights and the momenta."""
    found = hashlib.sha256()
    for parameter in trainer.model.parameters():
        momentum = trainer.optimizer.state[parameter]["momentum_buffer"]
        for tensor in (parameter, momentum):
            found.update(tensor.detach().cpu().numpy().tobytes())
    return found.hexdigest()


def main(folder: Path, way: str) -> None:
    """Train, move, count, train on."""
    world = MPI.COMM_WORLD
    device = torch.device("rig", world.rank)
    torch_rig.schedule("prompt")
    torch.accelerator.set_device_index(world.rank)
    reducer: ReducerOf = OrderedReduce if way == "host" else DeviceReducers(Communicators())
    group = Group.form(world, OLD, 10, SECONDS) if world.rank in OLD else joining(NEW, world.rank)
    trainer = Trainer(Task(), WORKERS, group, device, reducer=reducer)
    if world.rank in OLD:
        with trainer.reducing():
            for _ in range(STEPS):
                _step(trainer, device)
        trainer.settle()
    torch_rig.counts()
    resize(trainer, world, OLD, NEW, 20, SECONDS)
    counts = torch_rig.counts()
    told = {name: counts.get(name, 0) for name in ("d2h bytes", "h2d bytes")}
    digests = [_digest(trainer)]
    with trainer.reducing():
        _step(trainer, device)
    trainer.settle()
    digests.append(_digest(trainer))
    size = sum(parameter.numel() * parameter.element_size() for parameter in trainer.model.parameters())
    (folder / f"{world.rank}.json").write_text(json.dumps({**told, "bytes": size, "digests": digests}))
    trainer.group.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
