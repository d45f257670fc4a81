"""A trainer's queue: batches gathered from the node's ring a few steps ahead, by a thread (FLEET, MLSys'20, Figure 4,
Q_D).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from preprocess import Itinerary, LaneReader
from trainers import BatchPlan

DEPTH = 2  # steps ahead: one that is being trained on, one that is ready
TICK_SECONDS = 0.1
GRACE_SECONDS = 2.0  # the gathering thread, whose own waits are bounded, says on whom it waited before this is over

Batch = tuple[Any, torch.Tensor]


class FeedTimeout(TimeoutError):
    """No batch came in time; the text says on whom the trainer waited."""


@dataclass(frozen=True)
class Share:
    """Which of a lane's samples this member of a group reads.

    Attributes:
        plan: how an epoch is split over the job's virtual workers.
        block: the virtual ranks of this member.
        member, members: this member's index in its group, and the group's size.
        evaluation_batch: held-out samples of one batch; batch b is evaluated by member b mod members.
    """

    plan: BatchPlan
    block: range
    member: int
    members: int
    evaluation_batch: int


@dataclass(frozen=True)
class StepBatches:
    """What one step needs: a batch for each virtual worker of this member, in rank order."""

    epoch: int
    step: int
    batches: tuple[Batch, ...]


@dataclass(frozen=True)
class HeldOutBatch:
    """One batch of held-out samples; `index` counts over the whole epoch."""

    epoch: int
    index: int
    batch: Batch


@dataclass(frozen=True)
class EpochEnd:
    """All held-out batches of the epoch that are this member's have come."""

    epoch: int


Item = StepBatches | HeldOutBatch | EpochEnd


class Feed:
    """Gathers batches ahead of a trainer, epoch after epoch, until it is closed.

    Args:
        reader: this trainer's end of the lane.
        itinerary: where the lane's samples lie.
        share: which of them are ours.
        epoch, step: where to begin.
        device: where batches go.
        gather: copy the samples; a rehearsal only waits for them, since nobody looks at them.
        timeout: seconds that one wait for samples may take.
    """

    def __init__(
        self, reader: LaneReader, itinerary: Itinerary, share: Share, epoch: int, step: int, device: torch.device,
        gather: bool, timeout: float,
    ) -> None:  # fmt: skip
        self.waited = 0.0  # seconds that the trainer waited for a batch
        self._reader, self._itinerary, self._share = reader, itinerary, share
        self._device, self._gather, self._timeout = device, gather, timeout
        self._queue: queue.Queue[Item | BaseException] = queue.Queue(maxsize=DEPTH)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(epoch, step), name="feed", daemon=True)
        self._thread.start()

    def next(self) -> Item:
        """The next item, in order.

        Raises:
            FeedTimeout: if none came within the time-out.
            Exception: whatever the gathering raised.
        """
        begin = time.perf_counter()
        try:
            item = self._queue.get(timeout=self._timeout + GRACE_SECONDS)
        except queue.Empty:
            raise FeedTimeout(f"waited {self._timeout:.0f} s for the feed of {self._share.plan}") from None
        finally:
            self.waited += time.perf_counter() - begin
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Stop gathering and leave the lane."""
        self._closed.set()
        while self._thread.is_alive():
            self._drain()
            self._thread.join(TICK_SECONDS)
        self._reader.leave()

    def _drain(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()

    def _run(self, epoch: int, step: int) -> None:
        try:
            for item in self._items(epoch, step):
                if not self._put(item):
                    return
        except BaseException as error:
            self._put(error)

    def _put(self, item: Item | BaseException) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=TICK_SECONDS)
                return True
            except queue.Full:
                continue
        return False

    def _items(self, epoch: int, step: int) -> Iterator[Item]:
        """All items from (epoch, step) on, for ever."""
        while not self._closed.is_set():
            first = epoch == self._itinerary.first_epoch
            base = -self._itinerary.first_place if first else self._itinerary.position(epoch, 0)
            for number in range(step, self._share.plan.steps_per_epoch):
                yield self._step(epoch, number, base)
            yield from self._held_out(epoch)
            yield EpochEnd(epoch)
            epoch, step = epoch + 1, 0

    def _step(self, epoch: int, step: int, base: int) -> StepBatches:
        places = self._share.plan.step_range(step)
        self._await(base + places.start, base + places.stop)
        ranks = self._share.block
        batches = tuple(self._batch(base + np.array(places[r :: self._share.plan.virtual_workers])) for r in ranks)
        self._reader.release(base + places.stop)
        return StepBatches(epoch, step, batches)

    def _held_out(self, epoch: int) -> Iterator[HeldOutBatch]:
        size, total = self._share.evaluation_batch, self._itinerary.held_out
        for index, start in enumerate(range(0, total, size)):
            stop = min(start + size, total)
            first = self._itinerary.held_out_position(epoch, start)
            if index % self._share.members == self._share.member:
                self._await(first, first + stop - start)
                yield HeldOutBatch(epoch, index, self._batch(np.arange(first, first + stop - start)))
            self._skip(first, first + stop - start)

    def _await(self, start: int, stop: int) -> None:
        """Wait for the samples up to `stop`, giving back those before `start`, however many that are."""
        reader = self._reader
        reader.release(start)
        while stop - reader.released > reader.samples and not self._closed.is_set():
            reader.wait(min(start, reader.released + reader.samples), self._timeout, self._closed.is_set)
            reader.release(start)
        if not self._closed.is_set():
            reader.wait(stop, self._timeout, self._closed.is_set)

    def _skip(self, start: int, stop: int) -> None:
        """Read past samples that are another member's."""
        self._await(start, stop)
        if not self._closed.is_set():
            self._reader.release(stop)

    def _batch(self, positions: np.ndarray) -> Batch:
        if not self._gather or self._closed.is_set():
            return torch.empty(0), torch.empty(len(positions), 0)
        inputs, targets = self._reader.take(positions)
        return torch.from_numpy(inputs).to(self._device), torch.from_numpy(targets).to(self._device)
