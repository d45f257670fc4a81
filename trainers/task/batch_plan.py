"""Which samples of an epoch each virtual worker takes at each step, and how batches change from epoch to epoch.

The split is that of torch.utils.data.DistributedSampler (drop_last False, so it pads) under a DataLoader, as a pure
function: worker r takes every N-th position from r on, B a step. With drop_last, as that of the DataLoader, each worker
leaves its last batch of an epoch out where that has fewer.

Where batches change, the number of virtual workers stays, each worker's part of the batch changes, at the end of an
epoch. What a job computes is then a function of its task, its seed and these changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor, optim


@dataclass(frozen=True)
class BatchPlan:
    """The split of an epoch of `samples` samples over `virtual_workers` workers that take `batch_size` each a step.

    Positions count inside the epoch's order: 0 .. samples-1.
    """

    samples: int
    virtual_workers: int
    batch_size: int
    drop_last: bool = False

    def __post_init__(self) -> None:
        for name in ("samples", "virtual_workers", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be at least 1")
        if not self.steps_per_epoch:
            raise ValueError(
                f"drop_last leaves nothing of an epoch: each of {self.virtual_workers} workers has {self.per_worker} "
                f"of {self.samples} samples, and a batch is {self.batch_size}; take drop_last away, or lower batch_size"
            )

    @property
    def per_worker(self) -> int:
        """Samples that each worker takes an epoch."""
        return -(-self.samples // self.virtual_workers)

    @property
    def padded(self) -> int:
        """Length of the epoch's order once its head is repeated up to a multiple of the workers."""
        return self.per_worker * self.virtual_workers

    @property
    def steps_per_epoch(self) -> int:
        """Steps an epoch; the last may have smaller batches, but with drop_last."""
        steps, rest = divmod(self.per_worker, self.batch_size)
        return steps + (rest > 0 and not self.drop_last)

    @property
    def taken(self) -> int:
        """Samples that all workers take an epoch; those that pad it count again."""
        return self.step_range(self.steps_per_epoch - 1).stop

    @property
    def last_batch(self) -> int:
        """Samples of one worker in the last step of an epoch."""
        return len(self.step_range(self.steps_per_epoch - 1)) // self.virtual_workers

    def step_range(self, step: int) -> range:
        """Return the padded positions that all workers together take; those from `samples` on repeat the head."""
        if not 0 <= step < self.steps_per_epoch:
            raise ValueError(f"step {step} is not in this epoch of {self.steps_per_epoch} steps")
        width = self.virtual_workers * self.batch_size
        return range(step * width, min((step + 1) * width, self.padded))

    def positions(self, rank: int, step: int) -> np.ndarray:
        """Return virtual worker `rank`'s positions at `step`, int64, in batch order."""
        if not 0 <= rank < self.virtual_workers:
            raise ValueError(f"virtual rank {rank} is not one of 0 to {self.virtual_workers - 1}")
        return np.array(self.step_range(step)[rank :: self.virtual_workers], dtype=np.int64) % self.samples


RULES: Mapping[str, Callable[[float], float]] = {
    "linear": lambda times: times,
    "square_root": math.sqrt,
    "keep": lambda times: 1.0,
}
"""By what the learning rate is multiplied when a batch is so many times as large as the job's own.

linear: Goyal et al., 2017 (arXiv:1706.02677), 2.1; square_root: Krizhevsky, 2014 (arXiv:1404.5997), 5.1.
"""


@dataclass(frozen=True, order=True)
class BatchChange:
    """From an epoch on, each virtual worker has other batches.

    epoch: the first of them, counted from 0. size: samples of one worker in a step.
    parts: each part in which a worker works on its own batch (see `step_options`) is cut into so many, so that
    it fits on the device.
    """

    epoch: int
    size: int
    parts: int = 1

    def __post_init__(self) -> None:
        if self.epoch < 0 or self.size < 1 or self.parts < 1:
            raise ValueError(f"{self} is impossible: epochs count from 0, sizes and parts from 1")


@dataclass(frozen=True)
class BatchSchedule:
    """The batches of a job by its epochs.

    own: samples of one worker in a step as the task has them; the learning rate and its schedule are made for these.
    rule: one of `RULES`.
    warm_up: epochs in which the learning rate comes to what the rule says, along a line (Goyal et al., 2.2).
    samples: how many an epoch has.
    changes: in the order of their epochs, each another batch than the one before.
    """

    own: int
    rule: str
    warm_up: float
    samples: int
    changes: tuple[BatchChange, ...] = ()

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"the learning rate's rule is {self.rule!r}; choose {', '.join(RULES)}")

    def at(self, epoch: int) -> BatchChange:
        """Return the change that holds in an epoch; before any, the job's own batch."""
        return next((change for change in reversed(self.changes) if change.epoch <= epoch), BatchChange(0, self.own))

    def changed(self, change: BatchChange) -> BatchSchedule:
        """Return the schedule with one change more; what was to come at its epoch or later is forgotten."""
        before = self.until(change.epoch)
        if (before.at(change.epoch).size, before.at(change.epoch).parts) == (change.size, change.parts):
            return before
        return replace(before, changes=(*before.changes, change))

    def until(self, epoch: int) -> BatchSchedule:
        """Return the schedule with the changes before an epoch alone."""
        return replace(self, changes=tuple(change for change in self.changes if change.epoch < epoch))

    def going_on(self, past: Sequence[BatchChange], epoch: int, step: int) -> BatchSchedule:
        """Return the schedule of a job that had changes until now and stands at this step; the future is this one's.

        ValueError if this one, too, has changes until now, and they are others.
        """
        known, went = self.until(epoch + (step > 0)).changes, self.standing(past, epoch, step)
        if known and known != went.until(epoch + (step > 0)).changes:
            raise ValueError(f"its batches were {list(past)}, and not {list(known)}")
        return went

    def standing(self, past: Sequence[BatchChange], epoch: int, step: int) -> BatchSchedule:
        """Return the schedule with other changes until a step, and its own after it."""
        first_open = epoch + (step > 0)
        went = tuple(change for change in past if change.epoch < first_open)
        to_come = tuple(change for change in self.changes if change.epoch >= first_open)
        return replace(self, changes=went + to_come)

    def factor(self, epoch: int, step: int, workers: int) -> float:
        """Return by what the learning rate of a step is multiplied; steps count inside the epoch."""
        steps = -(-self._per_worker(workers) // self.at(epoch).size)
        place, reached = epoch + step / steps, 1.0
        for index, change in enumerate(self.changes):
            after = self.changes[index + 1].epoch if index + 1 < len(self.changes) else math.inf
            wanted = RULES[self.rule](change.size / self.own)
            gone = min(place, after) - change.epoch
            if gone < 0:
                break
            reached += (wanted - reached) * (min(1.0, gone / self.warm_up) if self.warm_up else 1.0)
        return reached

    def turns(self, epoch: int, step: int, workers: int) -> int:
        """Return how many steps of the job's own batch end with a step: so often the learning-rate schedule is stepped.

        So a schedule has come as far after each epoch as without any change.
        """
        size, whole = self.at(epoch).size, self._per_worker(workers)
        ends = [-(-min(whole, number * size) // self.own) for number in (step, step + 1)]
        return ends[1] - ends[0]

    def _per_worker(self, workers: int) -> int:
        return -(-self.samples // workers)


def as_lists(changes: Iterable[BatchChange]) -> list[list[int]]:
    """Return changes as plain data: [epoch, size, parts] each."""
    return [[change.epoch, change.size, change.parts] for change in changes]


def from_lists(lists: Iterable[Sequence[int]]) -> tuple[BatchChange, ...]:
    """Return the changes that `as_lists` described."""
    return tuple(BatchChange(*numbers) for numbers in lists)


@contextmanager
def learning_rates_times(optimizer: optim.Optimizer, factor: float) -> Iterator[None]:
    """Multiply an optimizer's learning rates for an update; schedules never see that."""
    if factor == 1.0:
        yield
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    kept = [rate.clone() if isinstance(rate, Tensor) else rate for rate in rates]
    for group, rate in zip(optimizer.param_groups, rates):
        group["lr"] = rate.mul_(factor) if isinstance(rate, Tensor) else rate * factor
    try:
        yield
    finally:
        for group, rate, before in zip(optimizer.param_groups, rates, kept):
            group["lr"] = rate.copy_(before) if isinstance(rate, Tensor) else before
