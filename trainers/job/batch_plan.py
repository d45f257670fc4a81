"""Which samples of an epoch each virtual worker takes at each step.

It is the split of torch.utils.data.DistributedSampler (drop_last False, so it pads) under a DataLoader, as a pure
function: worker r takes every N-th position from r on, B a step. With drop_last, as that of the DataLoader, each worker
leaves its last batch of an epoch out where that has fewer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
