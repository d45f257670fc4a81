"""Forward and backward passes of one batch, in one part or several, whose gradients add up to the whole batch's.

Where the targets tell beforehand what each part's mean is divided by, a part's loss is multiplied by its share of
that. Else the gradients of mean times weight add up; before the last part's backward pass, which completes them, what
is there is divided by the sum of all weights. A part in which nothing counts adds nothing, whatever its mean is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainers.task import task as tasks
from trainers.task.loss import Loss, Weight, nothing_of
from trainers.task.step_options import StepOptions
from trainers.task.task import Batch, Task
from trainers.task.unfit_task import UnfitTask


class BatchLoss(NamedTuple):
    """The loss of a batch.

    mean: of all that counts. weight: what it was divided by; a tensor where a device has it, which nobody waits for.
    """

    mean: Tensor
    weight: Weight


def known_weights(task: Task, batch: Batch, options: StepOptions) -> list[Weight | None]:
    """Return what the means of a batch's parts are divided by, as far as their targets tell it.

    To be asked before the batch goes to a device. Of parts that are there already, the device is waited for; that of a
    whole batch stays there.
    """
    if options.accumulate == 1:
        weight = tasks.weight_of(task, batch)
        return [float(weight) if isinstance(weight, Tensor) and weight.device.type == "cpu" else weight]
    found = [tasks.weight_of(task, part) for part, _ in options.parts(batch)]
    return [None if weight is None else float(weight) for weight in found]


class PartSteps:
    """The passes of one batch.

    forward: gives the loss of a part whose weight is known or not. backward: leaves a scalar's gradients. taking: each
    part's passes run inside it, with whether it is the last one. parameters: gives those whose gradients they are.
    """

    def __init__(
        self,
        task: Task,
        forward: Callable[[Batch, Weight | None], Loss],
        backward: Callable[[Any], None],
        taking: Callable[[bool], AbstractContextManager[Any]],
        parameters: Callable[[], Iterable[nn.Parameter]],
    ) -> None:
        self._task, self._forward, self._backward = task, forward, backward
        self._taking, self._parameters = taking, parameters

    def run(self, batch: Batch, parts: Sequence[tuple[Batch, float]], weights: Sequence[Weight | None]) -> BatchLoss:
        """Leave the batch's gradients; return its loss.

        parts: as `trainers.task.step_options.StepOptions.parts` gives them. weights: see `known_weights`. UnfitTask if
        the loss does not say what it was divided by, and samples cannot be counted instead.
        """
        if len(parts) == 1:
            with self._taking(True):
                return leave_whole(batch, self._forward(batch, weights[0]), self._backward, self._parameters)
        adding: _Shares | _Sums | None = None
        for place, (part, _) in enumerate(parts):
            with self._taking(place == len(parts) - 1):
                loss = self._forward(part, weights[place])
                adding = adding or self._adding(batch, parts, loss, weights)
                _leave(*adding.next(loss, place), self._backward, self._parameters)
        assert adding is not None
        return adding.loss

    def _adding(
        self, batch: Batch, parts: Sequence[tuple[Batch, float]], first: Loss, known: Sequence[Weight | None]
    ) -> _Shares | _Sums:
        """Return how the parts' losses are added up, by what that of the first one says."""
        samples = tasks.samples_in(batch)
        if first.is_sum:
            return _Shares([1.0] * len(parts), samples, samples)
        if first.weight is None:
            tasks.check_weighed(self._task, first, batch, f"accumulate: {len(parts)}")
            return _Shares([divisor for _, divisor in parts], samples)
        weights = [float(weight) for weight in known if weight is not None]
        if len(weights) < len(parts):
            return _Sums(tasks.name_of(self._task), len(parts), list(self._parameters()))
        whole = sum(weights)
        return _Shares([whole / weight if weight else math.inf for weight in weights], whole)


def leave_whole(
    batch: Batch, loss: Loss, backward: Callable[[Any], None], parameters: Callable[[], Iterable[nn.Parameter]]
) -> BatchLoss:
    """Leave the gradients of a batch that is one part; return its loss."""
    mean, weight = loss.mean, loss.weight
    if loss.is_sum or weight is None:
        samples = tasks.samples_in(batch)
        backward(mean)
        return BatchLoss(mean.detach() / samples if loss.is_sum else mean.detach(), samples)
    _leave(mean, isinstance(weight, Tensor) or weight > 0, backward, parameters)
    return BatchLoss(mean.detach(), weight)


def _leave(
    term: Any, counts: bool, backward: Callable[[Any], None], parameters: Callable[[], Iterable[nn.Parameter]]
) -> None:
    """Leave a part's gradients; zeros where nothing counts, as others may wait for them."""
    if counts:
        backward(term)
        return
    with nothing_of(parameters()):
        backward(term)


class _Shares:
    """Parts whose share of the whole is known: each loss is divided by whole / part.

    divisors: infinite where nothing counts. weight: of the whole. samples: what a sum is told a mean of.
    """

    def __init__(self, divisors: Sequence[float], weight: float, samples: int = 1) -> None:
        self._divisors, self._weight, self._samples = divisors, weight, samples
        self._terms: list[Tensor] = []

    def next(self, loss: Loss, place: int) -> tuple[Tensor, bool]:
        """Return what the backward pass of the part at a place begins with, and whether anything counts there."""
        divisor = self._divisors[place]
        counts = divisor < math.inf
        term = loss.mean / divisor
        self._terms.append(term.detach() if counts else torch.zeros_like(term))
        return term, counts

    @property
    def loss(self) -> BatchLoss:
        """The whole batch's."""
        mean = torch.stack(self._terms).sum()
        return BatchLoss(mean if self._samples == 1 else mean / self._samples, self._weight)


class _Sums:
    """Parts of which each loss alone tells its weight."""

    def __init__(self, job: str, parts: int, parameters: Sequence[nn.Parameter]) -> None:
        self._job, self._parts, self._parameters = job, parts, parameters
        self._terms: list[Tensor] = []
        self._whole = 0.0

    def next(self, loss: Loss, place: int) -> tuple[Tensor, bool]:
        """Return what the backward pass of the part at a place begins with, and whether anything counts there.

        Before the last one, divide the gradients that are there.
        """
        if loss.weight is None:
            raise UnfitTask(
                f"job {self._job}: the loss gives (mean, weight) for one part of a batch, and a mean alone for "
                "another; let it give both always"
            )
        weight = float(loss.weight)
        self._whole += weight
        term = loss.mean * weight
        self._terms.append(term.detach() if weight else torch.zeros_like(term))
        if place < self._parts - 1 or not self._whole:
            return term, weight > 0
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if gradients:
            torch._foreach_div_(gradients, self._whole)
        return term / self._whole, weight > 0

    @property
    def loss(self) -> BatchLoss:
        """The whole batch's."""
        total = torch.stack(self._terms).sum()
        return BatchLoss(total / self._whole if self._whole else total, self._whole)
