"""What a batch's loss is, and what it was divided by: the parts of a batch, and batches, are added up by that.

A mean over tags that count, or with class weights, is no mean over samples. Where parts of a batch, or the batches of a
held-out set, have different divisors, a mean over samples of their means is another number, and so is its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class UnfitTask(ValueError):
    """A task cannot be trained as it is written; the text says what is wrong, and the mend."""


def given(job: str, call: str, value: Any, kind: type[Any], is_wanted: str) -> Any:
    """Return what a method of a task gave. UnfitTask if it is of another kind; a `return` is forgotten easily."""
    if isinstance(value, kind):
        return value
    forgotten = "; is its `return` missing?" if value is None else ""
    raise UnfitTask(f"job {job}: {call} gives {_shown(value)}, and must give {is_wanted}{forgotten}")


def _shown(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


Weight = float | Tensor
"""What a mean was divided by: a number, or a tensor of one element."""

IGNORED = -100
"""The target that torch's cross entropy leaves out unless it is told another."""
_FEW = 512
"""Targets that Python counts before NumPy has begun."""
_ENOUGH = 1e-3
"""Halves of a batch whose loss is a mean over samples differ from it by less, relatively; rounding to bfloat16 too."""
_MEND = (
    "let the loss return (mean, weight), the weight being what the mean was divided by: the number of targets that "
    "count, the sum of the class weights, or len(targets)"
)


class Loss(NamedTuple):
    """The loss of a batch.

    mean: a scalar that can be differentiated. weight: what it was divided by; None: nobody says.
    is_sum: nothing was divided, so that parts of a batch simply add up.
    """

    mean: Tensor
    weight: Weight | None = None
    is_sum: bool = False

    def total(self, samples: int) -> tuple[float, float]:
        """Return (sum, count) of the batch, as metrics have it; nothing of a batch in which nothing counts."""
        weight = float(samples) if self.weight is None or self.is_sum else float(self.weight)
        if not weight:
            return 0.0, 0.0
        return self.mean.item() * (1.0 if self.is_sum else weight), weight


def loss_given(job: str, given: Any, known: Weight | None, is_sum: bool) -> Loss:
    """Return what a loss function gave: a mean, or (mean, weight). A weight `known` from the targets goes first.

    UnfitTask if the weight is no number from 0 on.
    """
    if isinstance(given, Loss):
        return given
    if not (isinstance(given, tuple) and len(given) == 2):
        return Loss(given, known, is_sum)
    if known is not None:
        return Loss(given[0], known, is_sum)
    if isinstance(given[1], Tensor) and given[1].device.type == "meta":
        return Loss(given[0], given[1])
    try:
        weight = float(given[1])
    except (TypeError, ValueError, RuntimeError):
        weight = math.nan
    if not 0 <= weight < math.inf:
        raise UnfitTask(
            f"job {job}: the loss gives (mean, {given[1]!r:.60}), and the second must be what the mean was divided by, "
            "a number from 0 on, such as the number of targets that count"
        )
    return Loss(given[0], weight)


def cross_entropy_weight(
    targets: Tensor, ignored: int = IGNORED, weights: Tensor | None = None, classes: int | None = None
) -> Weight:
    """Return what torch's cross entropy divides by, which the targets alone say.

    weights: of the classes. classes: how many, where targets are probabilities.
    """
    if targets.is_floating_point():
        return targets.numel() / max(1, classes or targets.shape[min(1, targets.dim() - 1)])  # rehearsals have none
    if weights is None and type(targets) is Tensor and targets.is_cpu:
        count = targets.numel()  # `len` goes a long way through torch, and a small network's step has no time for that
        if count <= _FEW and targets.dim() == 1:
            return float(count - targets.tolist().count(ignored))
        return float(np.count_nonzero(targets.numpy() != ignored))
    counts = targets != ignored
    if weights is None:
        return counts.sum(dtype=torch.float32) if targets.device.type != "cpu" else counts.sum()
    return weights[torch.where(counts, targets, 0)].masked_fill(~counts, 0.0).sum()


@contextmanager
def nothing_of(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Let the gradients of a backward pass be zeros, in the order in which they come, though the loss may be NaN."""
    handles = [each.register_hook(torch.zeros_like) for each in parameters if each.requires_grad]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def check_countable(job: str, targets: Any, why: str, ignored: float | None = None) -> None:
    """Raise UnfitTask if a batch, whose loss says no weight, has targets that are left out.

    why: what makes that matter. ignored: what stands for such targets besides `IGNORED`.
    """
    for tensor in _tensors(targets):
        left_out = _left_out(tensor, ignored)
        if left_out:
            share = f"{left_out} of the {tensor.numel()} targets of a batch are {ignored or IGNORED:g}, which losses "
            raise UnfitTask(
                f"job {job}: {share}leave out, and its loss does not say what its mean was divided by; with {why} its "
                f"numbers would depend on how samples are put together. So {_MEND}"
            )


def check_alike(job: str, shapes: set[tuple[int, ...]], targets: Any, why: str) -> None:
    """Raise UnfitTask if the samples of two batches, whose loss says no weight, have targets of other lengths.

    shapes: of the samples' targets so far, which those of this batch are added to.
    """
    shapes |= {tuple(tensor.shape[1:]) for tensor in _tensors(targets)[:1] if tensor.dim() > 1}
    if len(shapes) > 1:
        lengths = " and ".join(str(shape) for shape in sorted(shapes)[:2])
        raise UnfitTask(
            f"job {job}: targets have shapes {lengths} in two batches, and its loss does not say what its mean was "
            f"divided by; with {why} its numbers would depend on how samples are put together. So {_MEND}"
        )


def check_additive(job: str, whole: float, parts: Sequence[tuple[float, int]], why: str) -> None:
    """Raise UnfitTask if a batch's loss, which says no weight, is not the mean over samples of its parts' losses.

    parts: loss and samples of each.
    """
    mean = sum(loss * samples for loss, samples in parts) / sum(samples for _, samples in parts)
    if math.isfinite(whole) and abs(whole - mean) > _ENOUGH * max(abs(whole), abs(mean), 1e-6):
        raise UnfitTask(
            f"job {job}: the loss of a batch is {whole:.6g}, and the mean over samples of its parts' losses "
            f"{mean:.6g}. It is no mean over samples, as with class weights, and does not say what it was divided by; "
            f"with {why} its numbers would depend on how samples are put together. So {_MEND}"
        )


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, (tuple, list)) else []


def _left_out(tensor: Tensor, ignored: float | None) -> int:
    if tensor.is_complex() or tensor.dtype == torch.bool:
        return 0
    if ignored is None and (tensor.is_floating_point() or not tensor.dtype.is_signed):
        return 0
    return int((tensor == (IGNORED if ignored is None else ignored)).sum())
