"""The losses of a step, read from the device at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from trainers.update import Turn


class Diverged(ArithmeticError):
    """A job's loss is no longer a finite number."""


def with_losses_read(job: str, turns: Sequence[Turn], first: int, place: str) -> list[Turn]:
    """Return the turns of workers `first`, `first` + 1, ... with their losses as numbers. Diverged.

    place: the step, for the error.
    """
    losses = [turn.loss for turn in turns]
    tensors = [loss for loss in losses if isinstance(loss, Tensor)]
    together = len(tensors) == len(losses) > 1
    values = torch.stack(tensors).tolist() if together else [float(loss) for loss in losses]
    for worker, value in enumerate(values, first):
        if not math.isfinite(value):
            raise Diverged(
                f"job {job} diverged: the loss of virtual worker {worker} is {value} at {place}; try a lower learning "
                "rate"
            )
    return [replace(turn, loss=value) for turn, value in zip(turns, values)]
