"""Steps of a trainer of a group, whose devices send to each other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch_rig
from torch import Tensor, nn

from tests.device.programs import counting, stepping
from tests.device.programs.mutants import changed
from trainers import Group, Trainer
from trainers.messages.torch_backend import TorchTransport
from trainers.reduce.device_reduce import Communicators, DeviceReducers
from trainers.repeatable.shared_state import CLOSE_LOOKS

SECONDS, STEPS = 60, CLOSE_LOOKS + 3  # in the first ones a trainer reads what a task did to its attributes
SCHEDULES = ("side-late:300", "main-late:300", "both-late")


class Looking(stepping.Task):
    """Looks at its gradients, so that no update is asked for before they are there."""

    def before_step(self, model: nn.Module) -> None: ...


TASKS = {"unread": stepping.Task, "looking": Looking}


def harm(rank: int, size: int, folder: str, mutant: list[str]) -> str:
    """Change words of a module; return what that does to steps under some schedule, "" if nothing."""
    torch.accelerator.set_device_index(rank)
    store = f"file://{folder}/store"
    dist.init_process_group(
        "cpu:gloo", init_method=store, rank=rank, world_size=size, timeout=timedelta(seconds=SECONDS)
    )
    wanted = {name: _trained(Trainer(made("perceptron"), size, Group.alone(), "cpu")) for name, made in TASKS.items()}
    if mutant:
        changed(*mutant)
    found = []
    for schedule in SCHEDULES:
        torch_rig.schedule(schedule)
        found += [f"{name} {schedule}: {told}" for name in TASKS if (told := _told(name, rank, size, wanted[name]))]
    dist.barrier()
    return "; ".join(found)


def _told(name: str, rank: int, size: int, wanted: list[Tensor]) -> str:
    """What is wrong with the weights, or with how often the host has slept."""
    reducer, device = DeviceReducers(Communicators()), torch.device("rig", rank)
    trainer = Trainer(
        TASKS[name]("perceptron"), size, Group.over(TorchTransport(timeout=SECONDS)), device, reducer=reducer
    )
    slept = counting.sleeps()
    try:
        with trainer.reducing():
            weights = _trained(trainer)
            torch.accelerator.synchronize(rank)
            trainer.group.barrier()
    except (RuntimeError, ArithmeticError) as error:
        return str(error).splitlines()[0]
    if not all(map(torch.equal, weights, wanted)):
        return "other weights"
    return "" if len(slept) >= STEPS else f"the host has slept {len(slept)} times"


def _trained(trainer: Any) -> list[Tensor]:
    for step in range(STEPS):
        trainer.step([stepping.batch(10 * step + worker.rank) for worker in trainer.workers])
    return [tensor.detach().cpu() for tensor in trainer.model.parameters()]
