"""Losses of steps, read at once, or from a device while it does the step after; and whether weights are numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import overload

import torch
from torch import Tensor, nn

from trainers.device.device_streams import mark, with_index
from trainers.step.update import TurnResult
from trainers.step.virtual_worker import VirtualWorker


class Diverged(ArithmeticError):
    """A job's loss is no longer a finite number."""


def with_losses_read(job: str, turns: Sequence[TurnResult], first: int, place: str) -> list[TurnResult]:
    """Return the turns of workers `first`, `first` + 1, ... with their losses as numbers. Diverged.

    place: the step, for the error.
    """
    losses, weights = copied([turn.loss for turn in turns])(), copied([turn.samples for turn in turns])()
    values = finite(job, losses, weights, first, place)
    return [TurnResult(turn.update, value, *turn[2:]) for turn, value in zip(turns, values)]


def finite(job: str, losses: Iterable[float], weights: Iterable[float], first: int, place: str) -> list[float]:
    """Return the losses of workers `first`, `first` + 1, ..., 0 of a batch in which nothing counts: its mean is none.

    Diverged: see `with_losses_read`.
    """
    values = [value if weight else 0.0 for value, weight in zip(losses, weights)]
    if not all(map(math.isfinite, values)):
        worker, value = next(each for each in enumerate(values, first) if not math.isfinite(each[1]))
        raise Diverged(
            f"job {job} diverged: the loss of virtual worker {worker} is {value} at {place}; try a lower learning rate"
        )
    return values


class StepLosses(Sequence[float]):
    """Each own worker's loss in a step, times what it was divided by; to look at one is to wait for the device.

    The workers have counted them once `settle` has returned.
    """

    def __init__(self, job: str, turns: Sequence[TurnResult], workers: Sequence[VirtualWorker], place: str) -> None:
        self._job, self._workers, self._place = job, list(workers), place
        self._read: Callable[[], list[float]] | None = copied([turn.loss for turn in turns])
        self._samples = copied([turn.samples for turn in turns])
        self._first = 0.0
        self._sums: list[float] = []

    @classmethod
    def counted(cls, means: Sequence[float], weights: Sequence[float], workers: Sequence[VirtualWorker]) -> StepLosses:
        """Return losses that `finite` gave, and let the workers count them."""
        found = cls.__new__(cls)
        found._read, found._workers = None, list(workers)
        found._sums = [worker.count(mean, weight) for worker, mean, weight in zip(workers, means, weights)]
        found._first = means[0]
        return found

    def settle(self) -> None:
        """Wait until the losses are there. Diverged, once."""
        read, self._read = self._read, None
        if read is not None:
            samples = self._samples()
            values = finite(self._job, read(), samples, self._workers[0].rank if self._workers else 0, self._place)
            counted = zip(self._workers, values, samples)
            self._sums = [worker.count(loss, samples) for worker, loss, samples in counted]
            self._first = values[0] if values else 0.0

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[float]: ...
    def __getitem__(self, index: int | slice) -> float | Sequence[float]:
        return self._settled._sums[index]

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def mean_of_first(self) -> float:
        """The mean loss of the first own worker's batch."""
        return self._settled._first

    @property
    def _settled(self) -> StepLosses:
        self.settle()
        return self


def copied(losses: Sequence[Tensor | float]) -> Callable[[], list[float]]:
    """Begin to copy losses, or what they were divided by, to the host; return what waits for them."""
    tensors = [loss for loss in losses if isinstance(loss, Tensor)]
    if not tensors:
        return lambda: losses  # type: ignore[return-value]
    if len(tensors) < len(losses) or tensors[0].device.type == "cpu":
        values = [loss.item() if isinstance(loss, Tensor) else loss for loss in losses]
        return lambda: values
    device = with_index(tensors[0].device)
    together = torch.stack(tensors) if len(tensors) > 1 else tensors[0].reshape(1)
    landed = torch.empty(together.shape, dtype=together.dtype, pin_memory=True).copy_(together, non_blocking=True)
    wait = mark(device)

    def read() -> list[float]:
        wait()
        numbers: list[float] = landed.tolist()
        return numbers

    return read


class FiniteWeights:
    """Holds a network's parameters and buffers to be numbers; those that were none as it was built may stay so.

    A mask is a buffer with infinities.
    """

    def __init__(self, job: str, model: nn.Module) -> None:
        self._job = job
        self._left_out = set(_unfit(_state(model)))

    def first_unfit(self, model: nn.Module, buffers: Iterable[Mapping[str, Tensor]] = ()) -> str | None:
        """Return the name of the first tensor that holds a NaN or an infinity; None: all are numbers.

        buffers: those of each virtual worker.
        """
        found = (name for state in (_state(model), *buffers) for name in _unfit(state) if name not in self._left_out)
        return next(found, None)

    def check(self, model: nn.Module, buffers: Iterable[Mapping[str, Tensor]] = ()) -> None:
        """Raise Diverged if there is such a tensor; see `first_unfit`."""
        name = self.first_unfit(model, buffers)
        if name is not None:
            raise Diverged(
                f"job {self._job} diverged: {name} holds NaN or infinite values after the last step, though the loss "
                "was finite before it; try a lower learning rate, or look for a gradient that is infinite, such as "
                "that of a square root or a norm at 0"
            )


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _unfit(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of tensors with NaNs or infinities; each device is waited for once."""
    found = []
    known = {name: each for name, each in tensors.items() if not nn.parameter.is_lazy(each)}
    floating = {name: each.detach() for name, each in known.items() if each.is_floating_point() and each.numel()}
    for device in {each.device for each in floating.values() if each.device.type != "meta"}:
        names = [name for name, each in floating.items() if each.device == device]
        fit = copied([floating[name].isfinite().all() for name in names])()
        found += [name for name, is_fit in zip(names, fit) if not is_fit]
    return found
