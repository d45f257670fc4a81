"""A trainer's queue (FLEET, MLSys'20, Figure 4, Q_D): its share of the node's ring, read in place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from fleet.workers.missing_samples import MakeSubstitute, Missing
from fleet.workers.own_batches import OwnBatches, Samples, pass_by, rows_of
from fleet.workers.packed_samples import collated
from fleet.workers.prefetch import ReadAhead, TimedOut
from preprocess import HELD_OUT, Itinerary, LaneReader, MemberOrder
from preprocess.samples.layout import ITSELF, Array
from preprocess.samples.part import Indices
from preprocess.samples.substitutes import mask_of
from preprocess.samples.tensors import tensor_in_place
from trainers import BatchPlan
from trainers.task.task import move

_GRACE_SECONDS = 2.0  # the thread that fetches ahead, whose own waits are bounded, says on whom before this is over

RingBatch = tuple[Any, Any]


class FeedTimeout(TimeoutError):
    """No batch came in time; the text says on whom the trainer waited."""


@dataclass(frozen=True)
class Share:
    """Which of a lane's samples this member of a group reads.

    Attributes:
        plan: how an epoch is split over the job's virtual workers.
        block: the virtual ranks of this member.
        member: this member's index in its group.
        evaluators: indices of members, who evaluate the batches in turn; the faster come more often.
        evaluation_batch: held-out samples of one batch.
        own: which samples of the stream are the job's own; None: all.
        held_out: which held-out samples are, ascending; None: all.
    """

    plan: BatchPlan
    block: range
    member: int
    evaluators: tuple[int, ...]
    evaluation_batch: int
    own: MemberOrder | None = None
    held_out: Indices | None = None


@dataclass(frozen=True)
class Reading:
    """How samples become batches.

    Attributes:
        gather: look at the samples at all; a rehearsal only waits for them, since nobody looks at them.
        in_place: a CPU's batches of inputs may lie in the ring: their taker makes a tensor of its own from them.
        collate: the task's own, where samples are packed (see `fleet.workers.packed_samples`).
    """

    gather: bool = True
    in_place: bool = False
    collate: Callable[[list[Any]], Any] | None = None


@dataclass(frozen=True)
class StepBatches:
    """What one step needs: a batch for each virtual worker of this member, in rank order, or what reads it."""

    epoch: int
    step: int
    batches: tuple[RingBatch | Callable[[], RingBatch], ...]


@dataclass(frozen=True)
class HeldOutBatch:
    """One batch of held-out samples; `index` counts over the whole epoch."""

    epoch: int
    index: int
    batch: RingBatch


@dataclass(frozen=True)
class EpochEnd:
    """All held-out batches of the epoch that are this member's have come."""

    epoch: int


Item = StepBatches | HeldOutBatch | EpochEnd


class BatchFeed:
    """A trainer's batches, epoch after epoch.

    On a CPU a virtual worker's batch is read when its turn comes, so that a trainer holds no more than one of its own.
    On other devices the next step's batches are copied to the device while this one is trained on. Ragged samples are
    copied as they come, and become batches when their turn comes: so a ring need not hold a step of the largest.

    Args:
        reader: this trainer's end of the lane.
        itinerary: where the lane's samples lie.
        share: which of them are ours.
        place: where to begin, an epoch and a step of it.
        device: where batches go.
        reading: how samples become batches.
        timeout: seconds that one wait for samples may take.
        make: makes what is taken in place of samples that cannot be made, where the stream has others than the job's
            own; called by whoever asks for items. None: the stream's are taken.
    """

    def __init__(
        self, reader: LaneReader, itinerary: Itinerary, share: Share, place: tuple[int, int], device: torch.device,
        reading: Reading, timeout: float, make: MakeSubstitute | None = None,
    ) -> None:  # fmt: skip
        self.waited = 0.0  # seconds that the trainer waited for samples
        self._reader, self._itinerary, self._share = reader, itinerary, share
        self._device, self._reading, self._timeout, self._make = device, reading, timeout, make
        self._closed = threading.Event()
        self._eager = device.type != "cpu"  # whether batches are read before their turn
        in_place = reading.in_place and reading.gather and not self._eager and not reader.is_ragged
        self._lane = tensor_in_place(reader.inputs) if in_place else None  # of which batches are parts
        self._own = self._own_batches()
        self._items = self._row(*place)
        self._ahead = ReadAhead(self._items, _tensors_of, device, self._closed) if self._eager else None

    def next(self) -> Item:
        """The next item, in order; the item before is gone.

        Raises:
            FeedTimeout: if none came within the time-out.
            RingTimeout, WriterLost: the samples did not come; the text says from whom.
        """
        begin = time.perf_counter()
        try:
            while isinstance(item := self._fetched(), Missing):
                item.leave() if self._make is None else item.replace(self._make)
            return item
        finally:
            self.waited += time.perf_counter() - begin

    def _fetched(self) -> Item | Missing:
        return next(self._items) if self._ahead is None else self._next_ahead(self._ahead)

    def _next_ahead(self, ahead: ReadAhead) -> Item | Missing:
        while True:
            try:
                item: Item | Missing = ahead.next(self._timeout + _GRACE_SECONDS)
                return item
            except TimedOut:
                if not self._reader.is_held_up:  # else the wait for samples ends later, with a better word
                    raise FeedTimeout(f"waited {self._timeout:.0f} s for the feed of {self._share.plan}") from None

    def close(self) -> None:
        """Stop reading and leave the lane."""
        self._closed.set()
        if self._ahead is not None:
            self._ahead.close()
        self._lane = None
        self._reader.leave()

    def _row(self, epoch: int, step: int) -> Iterator[Item | Missing]:
        """All items from (epoch, step) to the lane's end; asking for the next gives back the samples of the last."""
        last = self._itinerary.last_epoch
        while not self._closed.is_set() and (last is None or epoch <= last):
            yield from self._steps_of(epoch, step)
            copies = self._share.held_out is not None or self._reader.is_ragged
            yield from self._copied_held_out(epoch) if copies else self._held_out(epoch)
            yield EpochEnd(epoch)
            epoch, step = epoch + 1, 0

    def _steps_of(self, epoch: int, step: int) -> Iterator[StepBatches | Missing]:
        if self._own is not None:
            return self._own_steps(self._own, epoch, step)
        return self._ragged_steps(epoch, step) if self._reader.is_ragged else self._steps(epoch, step)

    def _begin(self, epoch: int) -> int:
        """The lane position of the epoch's first place; below 0 where the lane begins in its midst."""
        first = epoch == self._itinerary.first_epoch
        return -self._itinerary.first_place if first else self._itinerary.position(epoch, 0)

    def _ragged_steps(self, epoch: int, step: int) -> Iterator[StepBatches]:
        """The steps of a lane of ragged samples, which nothing of is held back when one comes."""
        base, workers, stopped = self._begin(epoch), self._share.plan.virtual_workers, self._closed.is_set
        for number in range(step, self._share.plan.steps_per_epoch):
            places = self._share.plan.step_range(number)
            start, stop = base + places.start, base + places.stop
            turns = [np.arange(start + rank, stop, workers) for rank in self._share.block]
            mine = np.sort(np.concatenate(turns))
            got = self._reader.gather(mine, self._timeout, stopped)
            if got is None or not pass_by(self._reader, stop, self._timeout, stopped):
                return
            batches = [partial(self._copies, rows_of(got, np.searchsorted(mine, turn))) for turn in turns]
            yield StepBatches(epoch, number, tuple(batch() if self._eager else batch for batch in batches))

    def _steps(self, epoch: int, step: int) -> Iterator[StepBatches]:
        base = self._begin(epoch)
        for number in range(step, self._share.plan.steps_per_epoch):
            places = self._share.plan.step_range(number)
            self._await(base + places.start, base + places.stop)
            yield self._step(epoch, number, base + places.start, base + places.stop)
            self._reader.release(base + places.stop)

    def _step(self, epoch: int, step: int, start: int, stop: int) -> StepBatches:
        workers = self._share.plan.virtual_workers
        batches: list[RingBatch | Callable[[], RingBatch]] = [
            partial(self._batch, start + rank, stop, workers) for rank in self._share.block
        ]
        if self._eager:
            batches = [batch() for batch in batches if callable(batch)]
        return StepBatches(epoch, step, tuple(batches))

    def _own_batches(self) -> OwnBatches | None:
        share = self._share
        if share.own is None:
            return None
        return OwnBatches(
            self._reader, self._itinerary, share.plan, share.block, share.own, self._timeout, self._closed.is_set
        )

    def _own_steps(self, own: OwnBatches, epoch: int, step: int) -> Iterator[StepBatches | Missing]:
        """The steps of a job with a part of its own; their samples are copies, so nothing is held back."""
        own.begin(epoch)
        for number in range(step, self._share.plan.steps_per_epoch):
            turns = yield from own.step(number)
            if turns is None:
                return
            yield StepBatches(epoch, number, tuple(self._copies(samples) for samples in turns))

    def _copied_held_out(self, epoch: int) -> Iterator[HeldOutBatch | Missing]:
        """The batches of the held-out samples that are the job's own, of all where all are."""
        reader, timeout, stopped, own = self._reader, self._timeout, self._closed.is_set, self._share.held_out
        own = np.arange(self._itinerary.held_out) if own is None else own
        begin, size, evaluators = (
            self._itinerary.held_out_position(epoch), self._share.evaluation_batch, self._share.evaluators,
        )  # fmt: skip
        for index, start in enumerate(range(0, own.size, size)):
            mine = own[start : start + size]
            if evaluators[index % len(evaluators)] == self._share.member:
                taken = np.empty(mine.size, np.int64)
                samples = reader.gather(begin + mine, timeout, stopped, substitutes=taken)
                if samples is None:
                    return
                yield from self._missing_held_out(epoch, mine, taken, samples)
                yield HeldOutBatch(epoch, index, self._copies(samples))
            if stopped() or not pass_by(reader, begin + int(mine[-1]) + 1, timeout, stopped):
                return

    def _missing_held_out(self, epoch: int, mine: Indices, taken: Indices, samples: Samples) -> Iterator[Missing]:
        """What is to be replaced in a batch of held-out samples."""
        if self._share.held_out is None or (taken == ITSELF).all():
            return
        own = mask_of(self._share.held_out, self._itinerary.held_out)
        yield from Missing.among(HELD_OUT, epoch, mine, taken, own, samples)

    def _held_out(self, epoch: int) -> Iterator[HeldOutBatch]:
        size, total, evaluators = self._share.evaluation_batch, self._itinerary.held_out, self._share.evaluators
        for index, start in enumerate(range(0, total, size)):
            first = self._itinerary.held_out_position(epoch, start)
            last = first + min(size, total - start)
            self._await(first, last)
            if evaluators[index % len(evaluators)] == self._share.member:
                yield HeldOutBatch(epoch, index, self._batch(first, last, 1))
            if not self._closed.is_set():
                self._reader.release(last)

    def _await(self, start: int, stop: int) -> None:
        """Wait for the samples up to `stop`, giving back those before `start`, however many that are."""
        reader = self._reader
        reader.release(start)
        while stop - reader.released > reader.certain and not self._closed.is_set():
            reader.wait(min(start, reader.released + reader.certain), self._timeout, self._closed.is_set)
            reader.release(start)
        if not self._closed.is_set():
            reader.wait(stop, self._timeout, self._closed.is_set)

    def _batch(self, start: int, stop: int, step: int) -> RingBatch:
        """The samples at the lane positions start, start + step ... below stop, as tensors on the device."""
        if not self._reading.gather or self._closed.is_set():
            return torch.empty(0), torch.empty(len(range(start, stop, step)), 0)
        if self._device.type != "cpu":
            inputs, targets = self._reader.view(start, stop, step)
            return self._copied(inputs), self._copied(targets)
        place = self._reader.span(start, stop, step) if self._lane is not None else None
        if self._lane is not None and place is not None:
            return self._lane[place], torch.from_numpy(self._reader.targets[place].copy())
        return self._copies(self._reader.take(np.arange(start, stop, step)))

    def _copies(self, samples: Samples) -> RingBatch:
        """Copies of samples as tensors on the device."""
        inputs, targets = samples
        if not self._reading.gather:
            return torch.empty(0), torch.empty(len(targets), 0)
        if self._reading.collate is not None:
            batch: RingBatch = move(collated(inputs, self._reading.collate), self._device)
            return batch
        if self._device.type != "cpu":
            return self._copied(inputs), self._copied(targets)
        return torch.from_numpy(inputs), torch.from_numpy(targets)

    def _copied(self, samples: Array) -> torch.Tensor:
        """Samples on their way to the device, from pinned memory, which torch keeps until they are there."""
        return tensor_in_place(samples).pin_memory().to(self._device, non_blocking=True)


def _tensors_of(item: Item) -> Iterator[torch.Tensor]:
    batches = item.batches if isinstance(item, StepBatches) else [item.batch] if isinstance(item, HeldOutBatch) else []
    for batch in batches:
        if not callable(batch):
            yield from _tensors_in(batch)


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping | tuple | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors_in(item)
