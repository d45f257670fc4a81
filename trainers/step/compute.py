"""What a trainer does with a batch of one virtual worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from trainers.step.virtual_worker import VirtualWorker
from trainers.task import task as tasks
from trainers.task.parts import Phase, phases_of
from trainers.task.step_options import StepOptions
from trainers.task.task import Batch, Task


class Training(Protocol):
    """What a computation may ask of the `Trainer` that it computes for."""

    task: Task
    model: nn.Module
    device: torch.device
    epoch: int
    accumulating: bool

    @property
    def options(self) -> StepOptions:
        """What the task asks of the step."""


class Compute(Protocol):
    """What fills the parameters' gradients for one batch of one virtual worker."""

    def gradients(self, trainer: Training, worker: VirtualWorker, batch: Batch) -> Tensor | float:
        """Leave gradients in `trainer.model`'s parameters (missing ones count as zero); return the mean loss.

        The trainer takes each as soon as it is whole: while `trainer.accumulating` is False, from inside `backward`.
        """


class ForwardBackward:
    """The real computation."""

    def gradients(self, trainer: Training, worker: VirtualWorker, batch: Batch) -> Tensor:
        """Run forward and backward, part by part; return the loss."""
        parts = trainer.options.parts(batch)
        losses = []
        for number, (part, divisor) in enumerate(parts, 1):
            trainer.accumulating = number < len(parts)
            with trainer.options.precision(trainer.device):
                loss = tasks.loss_of(trainer.task, trainer.model, part)
            loss = loss if len(parts) == 1 else loss / divisor
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return torch.stack(losses).sum() if len(parts) > 1 else losses[0]

    def phases(self, trainer: Training, batch: Batch) -> Iterator[Phase]:
        """Return the step that the task itself has written; only such a task has phases."""
        return phases_of(trainer.task, trainer.model, batch)
