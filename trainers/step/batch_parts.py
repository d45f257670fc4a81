"""Forward and backward passes of one batch, in one part or several, whose gradients add up to the whole batch's.

Where the targets tell beforehand what each part's mean is divided by, a part's loss is multiplied by its share of
that. Else the gradients of mean times weight add up; before the last part's backward pass, which completes them, what
is there is divided by the sum of all weights. A part in which nothing counts adds nothing, whatever its mean is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainers.task import task as tasks
from trainers.task.loss import Loss, Weight, nothing_of
from trainers.task.task import Batch, Task
from trainers.task.unfit_task import UnfitTask


class BatchLoss(NamedTuple):
    """The loss of a batch.

    mean: of all that counts. weight: what it was divided by; on a device it may be a tensor that nobody has waited for.
    """

    mean: Tensor
    weight: Weight


class PartSteps:
    """The passes of one batch.

    forward: gives a part's loss. backward: leaves a scalar's gradients. taking: each part's passes run inside it, with
    whether it is the last one. parameters: theirs are the gradients.
    """

    def __init__(
        self,
        task: Task,
        forward: Callable[[Batch], Loss],
        backward: Callable[[Any], None],
        taking: Callable[[bool], AbstractContextManager[Any]],
        parameters: Iterable[nn.Parameter],
    ) -> None:
        self._task, self._forward, self._backward = task, forward, backward
        self._taking, self._parameters = taking, list(parameters)

    def run(self, batch: Batch, parts: Sequence[tuple[Batch, float]]) -> BatchLoss:
        """Leave the batch's gradients; return its loss.

        parts: as `trainers.task.step_options.StepOptions.parts` gives them. UnfitTask if the loss does not say what it
        was divided by, and samples cannot be counted instead.
        """
        if len(parts) == 1:
            return self._whole(batch)
        adding: _Shares | _Sums | None = None
        for place, (part, _) in enumerate(parts):
            with self._taking(place == len(parts) - 1):
                loss = self._forward(part)
                adding = adding or self._adding(batch, parts, loss)
                self._leave(*adding.next(loss, place))
        assert adding is not None
        return adding.loss

    def _whole(self, batch: Batch) -> BatchLoss:
        samples = tasks.samples_in(batch)
        with self._taking(True):
            loss = self._forward(batch)
            if loss.is_sum or loss.weight is None:
                self._backward(loss.mean)
                return BatchLoss(loss.mean.detach() / samples if loss.is_sum else loss.mean.detach(), samples)
            weight = loss.weight
            if isinstance(weight, Tensor) and weight.device.type == "cpu":
                weight = float(weight)  # that of a device is not waited for: cross entropy of nothing has no gradients
            self._leave(loss.mean, isinstance(weight, Tensor) or weight > 0)
        return BatchLoss(loss.mean.detach(), weight)

    def _leave(self, term: Any, counts: bool) -> None:
        """Leave a part's gradients; zeros where nothing counts, as others may wait for them."""
        with nullcontext() if counts else nothing_of(self._parameters):
            self._backward(term)

    def _adding(self, batch: Batch, parts: Sequence[tuple[Batch, float]], first: Loss) -> _Shares | _Sums:
        """Return how the parts' losses are added up, by what that of the first one says."""
        samples = tasks.samples_in(batch)
        if first.is_sum:
            return _Shares([1.0] * len(parts), samples, samples)
        if first.weight is None:
            tasks.check_weighed(self._task, first, batch, f"accumulate: {len(parts)}")
            return _Shares([divisor for _, divisor in parts], samples)
        known = [tasks.weight_of(self._task, part) for part, _ in parts]
        if any(weight is None for weight in known):
            return _Sums(tasks.name_of(self._task), len(parts), self._parameters)
        weights = _numbers([weight for weight in known if weight is not None])
        whole = sum(weights)
        return _Shares([whole / weight if weight else math.inf for weight in weights], whole)


class _Shares:
    """Parts whose share of the whole is known: each loss is divided by whole / part.

    divisors: infinite where nothing counts. weight: of the whole. samples: what a sum is told a mean of.
    """

    def __init__(self, divisors: Sequence[float], weight: Weight, samples: int = 1) -> None:
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


def _numbers(weights: Sequence[Weight]) -> list[float]:
    """Return weights as numbers; a device is waited for once."""
    tensors = [weight for weight in weights if isinstance(weight, Tensor)]
    return torch.stack(tensors).tolist() if len(tensors) == len(weights) else [float(weight) for weight in weights]
