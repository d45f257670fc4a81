"""What a trainer does with a batch of one virtual worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainers.step.batch_parts import BatchLoss, PartSteps, leave_whole
from trainers.step.virtual_worker import VirtualWorker
from trainers.task import task as tasks
from trainers.task.loss import Loss, Weight
from trainers.task.parts import Phase, phases_of
from trainers.task.step_options import NOTHING, StepOptions
from trainers.task.task import Batch, Task


class UnfitLoss(TypeError):
    """A task gave a loss that has no gradients."""


class Training(Protocol):
    """What a computation may ask of the `Trainer` that it computes for."""

    task: Task
    model: nn.Module
    device: torch.device
    epoch: int
    accumulating: bool
    weights: list[Weight | None]

    @property
    def options(self) -> StepOptions:
        """What the task asks of the step."""


class Compute(Protocol):
    """What fills the parameters' gradients for one batch of one virtual worker."""

    def gradients(self, trainer: Training, worker: VirtualWorker, batch: Batch) -> BatchLoss | float:
        """Leave gradients in `trainer.model`'s parameters (missing ones count as zero); return the loss, or the mean.

        The trainer takes each as soon as it is whole: while `trainer.accumulating` is False, from inside `backward`.
        """


class ForwardBackward:
    """The real computation."""

    def gradients(self, trainer: Training, worker: VirtualWorker, batch: Batch) -> BatchLoss:
        """Run forward and backward, part by part; return the loss."""
        options = trainer.options
        if options.accumulate == 1:
            with options.precision(trainer.device):
                loss = tasks.weighed_loss_of(trainer.task, trainer.model, batch, trainer.weights[0])
            return leave_whole(batch, loss, backward, trainer.model.parameters)

        def forward(part: Batch, weight: Weight | None) -> Loss:
            with options.precision(trainer.device):
                return tasks.weighed_loss_of(trainer.task, trainer.model, part, weight)

        def taking(is_last: bool) -> AbstractContextManager[None]:
            trainer.accumulating = not is_last
            return NOTHING

        steps = PartSteps(trainer.task, forward, backward, taking, trainer.model.parameters)
        return steps.run(batch, options.parts(batch), trainer.weights)

    def phases(self, trainer: Training, batch: Batch) -> Iterator[Phase]:
        """Return the step that the task itself has written; only such a task has phases."""
        return phases_of(trainer.task, trainer.model, batch)


def backward(loss: Any, **options: Any) -> None:
    """Run the backward pass of a loss, with torch's `options`. UnfitLoss says what is wrong with one that has none."""
    try:
        loss.backward(**options)
    except Exception as error:
        if rule := _misfit(loss):
            raise UnfitLoss(
                f"{rule}; return the mean over the batch, as functional.cross_entropy does, or (mean, what "
                "it was divided by)"
            ) from error
        raise


def _misfit(loss: Any) -> str:
    if not isinstance(loss, Tensor):
        return f"the loss is of type {type(loss).__name__}, and must be a tensor"
    if loss.numel() != 1:
        return f"the loss is a tensor of shape {tuple(loss.shape)}, and must be a single number"
    return "" if loss.requires_grad else "the loss does not depend on any weights that are trained, or was detached"
