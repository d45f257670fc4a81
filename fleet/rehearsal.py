"""Rehearsal: everything real but the device's compute, which is a wait taken from the rate curve."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from trainers import Batch, Trainer, VirtualWorker

PER_EPOCH = 0.15  # a rehearsed loss falls like a loss does, so that the report has something to draw


class RehearsedCompute:
    """Takes the place of forward and backward: waits as long as the curve says a step takes, and leaves no gradients.

    A group of m devices takes N B / r(m) seconds a step for N virtual workers with batches of B. What the real parts
    of the step cost here (reduction, optimizer, messages) is inside r(m) already, so it is taken off the wait.

    Args:
        rate: r(m), samples/s, of the group.
        virtual_workers, batch_size: N and B.
        largest_block: virtual workers of the group's largest member; a smaller one is done earlier and waits for its
        peers.
        time_scale: seconds rehearsed for one second of a real run.
    """

    def __init__(
        self, rate: float, virtual_workers: int, batch_size: int, largest_block: int, time_scale: float
    ) -> None:
        self._turn_seconds = virtual_workers * batch_size / rate / largest_block * time_scale
        self._waited: Callable[[], float] = lambda: 0.0
        self._ended: tuple[float, float] | None = None  # time and waits at the end of the last turn

    def watch(self, waited: Callable[[], float]) -> None:
        """Take `waited()`, seconds that this member waited for data and peers so far, as no cost of its own."""
        self._waited = waited

    def gradients(self, trainer: Trainer, worker: VirtualWorker, batch: Batch) -> float:
        """Wait for one turn of one worker; return a loss that falls with the epochs."""
        overhead = 0.0
        if self._ended is not None:
            ended, waits = self._ended
            overhead = (time.perf_counter() - ended) - (self._waited() - waits)
        time.sleep(max(0.0, self._turn_seconds - max(0.0, overhead)))
        self._ended = (time.perf_counter(), self._waited())
        return math.exp(-PER_EPOCH * trainer.epoch)
