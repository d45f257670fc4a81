"""A network that goes wrong in one phase of its training, in one way; copied beside its spec."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import threading
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

VALUES: dict[str, Any] = {"nan": math.nan, "inf": math.inf, "huge": 1e300, "strange": object()}
LATER = 5  # calls that pass before a fault of a step or a schedule shows


class Unprintable(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


def go_wrong(fault: str) -> Any:
    """Do what the fault says; one that is a value is returned."""
    match fault:
        case "raise":
            raise RuntimeError("the hull leaks")
        case "surrogate":
            raise RuntimeError("there is no file p\udcffx")
        case "unprintable":
            raise Unprintable
        case "memory":
            raise MemoryError("no room for the cargo")
        case "exit":
            sys.exit(3)
        case "exit at once":
            os._exit(3)
        case "crash":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            threading.Event().wait()
    return VALUES[fault]


class Task:
    """A perceptron, its loss, metric and schedule.

    Args:
        fault: see `go_wrong`.
        phase: "build", "profile", "step", "last step", "evaluation", "metric", "schedule", "checkpoint" or "move".
        steps: of an epoch, both virtual workers' together.
    """

    batch_size = 4
    scratch = ("calls",)  # they are the process's, and not each virtual worker's

    def __init__(self, fault: str, phase: str, steps: int = 20) -> None:
        self.fault, self.phase, self.steps = fault, phase, steps
        self.calls = 0

    def at(self, phase: str) -> Any:
        """The value that stands in for one where the fault shows now; else 1."""
        return go_wrong(self.fault) if phase == self.phase else 1.0

    def model(self) -> nn.Module:
        made = nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, 10))
        made(torch.zeros(1, 1, 12, 12))
        if next(made.parameters()).device.type != "meta":
            self.at("build")
        return made

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.05)

    def scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return Schedule(self, optimizer)

    def loss(self, model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = cross_entropy(model(batch[0]), batch[1])
        if loss.device.type == "meta":
            return loss
        if not torch.is_grad_enabled():
            return loss * self.at("evaluation")
        self.calls += 1
        loss = loss * self.at("profile")
        if self.calls == LATER:
            loss = loss * self.at("step")
        return loss * (self.at("last step") if self.calls == self.steps else 1.0)

    def metrics(self, model: Any, batch: tuple[Tensor, Tensor]) -> dict[str, tuple[float, float]]:
        return {"right": (self.at("metric"), 1.0)}


class Schedule(torch.optim.lr_scheduler.LambdaLR):
    """A constant learning rate."""

    def __init__(self, task: Task, optimizer: torch.optim.Optimizer) -> None:
        self.task: Any = None
        super().__init__(optimizer, lambda step: 1.0)
        self.task = task

    def step(self, epoch: int | None = None) -> None:
        super().step()
        if self.task is not None and self.last_epoch == LATER:
            for group in self.optimizer.param_groups:
                group["lr"] *= self.task.at("schedule")

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch, "factor": self.task.at("checkpoint")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.task.at("move")
        self.last_epoch = state["last_epoch"]
