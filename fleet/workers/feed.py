"""A trainer's queue (FLEET, MLSys'20, Figure 4, Q_D): its share of the node's ring, read in place."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

import numpy as np
import torch

from preprocess.ring.ring import LaneReader
from preprocess.samples.layout import ITSELF, Array, Indices, InputPlace, RaggedSize, places_in, tensor_in_place
from preprocess.samples.order import HELD_OUT, TRAIN, Mask, mask_of
from preprocess.samples.part import MemberOrder
from preprocess.samples.stream import LaneSchedule
from trainers import BatchPlan
from trainers.device.device_streams import select, with_index
from trainers.state.tree import decode, encode
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
        collate: the task's own, where samples are packed (see `fleet.workers.feed`).
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
        schedule: where the lane's samples lie.
        share: which of them are ours.
        place: where to begin, an epoch and a step of it.
        device: where batches go.
        reading: how samples become batches.
        timeout: seconds that one wait for samples may take.
        make: makes what is taken in place of samples that cannot be made, where the stream has others than the job's
            own; called by whoever asks for items. None: the stream's are taken.
    """

    def __init__(
        self,
        reader: LaneReader,
        schedule: LaneSchedule,
        share: Share,
        place: tuple[int, int],
        device: torch.device,
        reading: Reading,
        timeout: float,
        make: MakeSubstitute | None = None,
    ) -> None:
        self.waited = 0.0  # seconds that the trainer waited for samples
        self._reader, self._schedule, self._share = reader, schedule, share
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
        last = self._schedule.last_epoch
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
        first = epoch == self._schedule.first_epoch
        return -self._schedule.first_place if first else self._schedule.position(epoch, 0)

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
            self._reader, self._schedule, share.plan, share.block, share.own, self._timeout, self._closed.is_set
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
        own = np.arange(self._schedule.held_out) if own is None else own
        begin, size, evaluators = (
            self._schedule.held_out_position(epoch),
            self._share.evaluation_batch,
            self._share.evaluators,
        )
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
        own = mask_of(self._share.held_out, self._schedule.held_out)
        yield from Missing.among(HELD_OUT, epoch, mine, taken, own, samples)

    def _held_out(self, epoch: int) -> Iterator[HeldOutBatch]:
        size, total, evaluators = self._share.evaluation_batch, self._schedule.held_out, self._share.evaluators
        for index, start in enumerate(range(0, total, size)):
            first = self._schedule.held_out_position(epoch, start)
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


class TimedOut(TimeoutError):
    """The next item was not there in time."""


class ReadAhead:
    """Fetches one item ahead, in a thread; for a GPU with copies on a stream of their own, beside the computation.

    Args:
        items: endless; the first is asked for at once, in the thread.
        tensors: gives the tensors that an item holds.
        device: where they are wanted.
        closed: set when nobody wants more: the items end their waits then.
    """

    def __init__(
        self,
        items: Iterator[Any],
        tensors: Callable[[Any], Iterable[torch.Tensor]],
        device: torch.device,
        closed: threading.Event,
    ) -> None:
        self._items, self._tensors, self._device, self._closed = items, tensors, with_index(device), closed
        self._module: Any = torch.get_device_module(device)
        self._stream = None if device.type == "cpu" else self._module.Stream(device=self._device)
        self._executor = ThreadPoolExecutor(1, "feed", select, (self._device,))
        self._next: Future[tuple[Any, Any]] = self._executor.submit(self._fetch)

    def next(self, timeout: float) -> Any:
        """Return the next item, and begin with the one after it.

        Raises:
            TimedOut: it did not come within so many seconds.
            Exception: whatever fetching it raised.
        """
        try:
            item, copied = self._next.result(timeout)
        except FutureTimeout:
            if self._next.done():  # the fetching itself ran into a time-out
                raise
            raise TimedOut from None
        if copied is not None:
            stream = self._module.current_stream(self._device)
            stream.wait_event(copied)
            for tensor in self._tensors(item):  # their memory is not to be used anew before this stream is through
                if tensor.device == self._device:
                    tensor.record_stream(stream)
        self._next = self._executor.submit(self._fetch)
        return item

    def close(self) -> None:
        """Wait for the end of the fetch under way; `closed` is set."""
        assert self._closed.is_set()
        self._executor.shutdown(wait=True)

    def _fetch(self) -> tuple[Any, Any]:
        """The next item, and the event after which its tensors are there."""
        with nullcontext() if self._stream is None else self._module.stream(self._stream):
            item = next(self._items)
            return item, None if self._stream is None else self._stream.record_event()


Samples = tuple[Array, Array]
"""(inputs, targets)"""


class OwnBatches:
    """One group member's batches, epoch after epoch.

    A step may lie over more of the stream than a ring holds, so its samples are copied as they come. The first ones of
    an epoch pad its end: they are kept until then, but for the lane's first epoch, in whose midst the job may come. Of
    that epoch the lane brings them again.

    Args:
        reader, schedule: they belong to the lane.
        plan: how the job's own samples are split over its virtual workers.
        block: the virtual ranks of this member.
        order: which samples are the job's own.
        timeout: seconds that one wait may take.
        stopped: asked now and then whether to end a wait.
    """

    def __init__(
        self,
        reader: LaneReader,
        schedule: LaneSchedule,
        plan: BatchPlan,
        block: range,
        order: MemberOrder,
        timeout: float,
        stopped: Callable[[], bool],
    ) -> None:
        self._reader, self._schedule, self._plan, self._block = reader, schedule, plan, block
        self._order, self._timeout, self._stopped = order, timeout, stopped
        self._positions = self._again = np.empty(0, np.int64)
        self._epoch = 0
        self._fresh = 0  # so many of the padded order come by; those that are kept stand for the others
        self._kept: Samples | None = None

    def begin(self, epoch: int) -> None:
        """Turn to an epoch; its steps come next, from the first one on unless it is the lane's first epoch."""
        plan, first, self._epoch = self._plan, epoch == self._schedule.first_epoch, epoch
        base = -self._schedule.first_place if first else self._schedule.position(epoch, 0)
        self._positions = base + self._order.padded_places(epoch, plan.padded)
        self._fresh = plan.padded if first else plan.samples
        repeated = np.arange(self._fresh, plan.padded)
        mine = repeated[np.isin(repeated % plan.virtual_workers, self._block)]
        self._again, self._kept = np.unique(mine % plan.samples), None

    def step(self, number: int) -> Generator[Missing, None, list[Samples] | None]:
        """Return the samples of each of this member's virtual workers; None if the wait was stopped.

        Yields:
            those in whose place lie others that are not the job's own; it goes on once they are replaced.
        """
        places, workers = self._plan.step_range(number), self._plan.virtual_workers
        turns = [np.arange(places.start + rank, places.stop, workers) for rank in self._block]
        coming = np.concatenate([turn[turn < self._fresh] for turn in turns])
        if number == 0:
            coming = np.concatenate([coming, self._again])
        coming = np.unique(coming)
        taken = np.empty(coming.size, np.int64)
        got = self._reader.gather(self._positions[coming], self._timeout, self._stopped, substitutes=taken)
        end = int(self._positions[min(places.stop, self._fresh) - 1]) + 1
        if got is None or not pass_by(self._reader, end, self._timeout, self._stopped):
            return None
        yield from self._missing(coming, taken, got)
        if number == 0:
            self._kept = rows_of(got, np.searchsorted(coming, self._again))
        return [self._turn(turn, coming, got) for turn in turns]

    def _missing(self, numbers: Indices, taken: Indices, got: Samples) -> Iterator[Missing]:
        """What is to be replaced of the samples with these numbers in the padded order."""
        if (taken == ITSELF).all():
            return
        samples = self._order.of_epoch(self._epoch)[numbers % self._plan.samples]
        yield from Missing.among(TRAIN, self._epoch, samples, taken, self._order.own, got)

    def _turn(self, turn: Indices, coming: Indices, got: Samples) -> Samples:
        """The samples with these numbers in the padded order, of those that came and those that are kept."""
        fresh, repeated = turn[turn < self._fresh], turn[turn >= self._fresh]
        samples = rows_of(got, np.searchsorted(coming, fresh))
        if not repeated.size:
            return samples
        assert self._kept is not None, "an epoch is read from its first step on, but for the lane's first one"
        more = rows_of(self._kept, np.searchsorted(self._again, repeated % self._plan.samples))
        return np.concatenate([samples[0], more[0]]), np.concatenate([samples[1], more[1]])


def pass_by(reader: LaneReader, position: int, timeout: float, stopped: Callable[[], bool]) -> bool:
    """Give back all samples before a lane position, once they are here.

    Other members of the group, for which this one will wait, read up to there: a ring that is full of what nobody needs
    any more would not let them.

    Args:
        timeout: seconds that one wait may take.
        stopped: asked now and then whether to end a wait.

    Returns:
        False if the wait was stopped.
    """
    while reader.available < position:
        reader.release(reader.available)
        if not reader.wait(min(position, reader.released + reader.certain), timeout, stopped):
            return False
    reader.release(position)
    return True


def rows_of(samples: Samples, rows: Indices) -> Samples:
    """Some of the samples, (inputs, targets)."""
    return samples[0][rows], samples[1][rows]


MakeSubstitute = Callable[[str, int, int, InputPlace, Array, Mask], object]
"""Makes what is taken: called with kind, epoch, sample, its input's and its target's place, and what may be taken."""


@dataclass(frozen=True)
class Missing:
    """Samples of a network that could not be made, and in whose place lie others that are not its own.

    The feed hands them to the thread that trains, which alone may run a person's code, and goes on once that has put
    the network's own there.

    Attributes:
        kind: "train" or "held_out".
        epoch: the stream's.
        samples: their indices in the data set, (count,).
        rows: where they lie in the batch, (count,).
        own: which samples of the kind are the network's own.
        inputs, targets: the batch.
        found: set once they are replaced, or cannot be.
    """

    kind: str
    epoch: int
    samples: Indices
    rows: Indices
    own: Mask
    inputs: Array
    targets: Array
    found: Event

    @classmethod
    def among(
        cls, kind: str, epoch: int, samples: Indices, taken: Indices, own: Mask, batch: tuple[Array, Array]
    ) -> Iterator[Missing]:
        """Ask for those of a batch's samples, (count,), in whose place others were taken that are not own, if any.

        Args:
            taken: what lies in their places: `ITSELF`, or a sample's index, (count,).
        """
        rows = np.flatnonzero(taken != ITSELF)
        rows = rows[~own[taken[rows]]]
        if rows.size:
            missing = cls(kind, epoch, samples[rows], rows, own, *batch, Event())
            yield missing
            missing.found.wait()

    def replace(self, make: MakeSubstitute) -> None:
        """Put the network's own samples there."""
        try:
            place = places_in(self.inputs)
            for row, sample in zip(self.rows.tolist(), self.samples.tolist()):
                make(self.kind, self.epoch, sample, place(row), self.targets[row : row + 1], self.own)
        finally:
            self.found.set()

    def leave(self) -> None:
        """Let those stay that lie there."""
        self.found.set()


_HEADER_BYTES = 128  # how much longer another sample's description of its arrays may be than the largest one's


class SampleTooLarge(ValueError):
    """A sample is larger than was said."""


def packing_of(task: Any) -> SamplePacker | None:
    """Return how the samples of a task are packed; None where it does not collate them itself.

    ValueError if it does not say how large they may be.
    """
    if not hasattr(task, "collate"):
        return None
    if not hasattr(task, "largest_sample"):
        raise ValueError(
            "the task has collate(samples) and no largest_sample(), and the ring must have room for any sample; add "
            "`def largest_sample(self)`, which gives a sample as large as any, such as zeros"
        )
    return SamplePacker(
        len(encode(task.largest_sample())), "the task's largest_sample()", "let that give a sample as large as any"
    )


class SamplePacker:
    """Packs samples; most_bytes: of one.

    Args:
        most: bytes of a sample as large as any, encoded.
        what: where that is said.
        mend: what to do about a sample that is larger.
    """

    def __init__(self, most: int, what: str, mend: str) -> None:
        self.most_bytes = most + _HEADER_BYTES
        self._what, self._mend = what, mend

    def pack(self, sample: Any, index: int) -> np.ndarray:
        """Return the sample's bytes, (any,) uint8. SampleTooLarge; TypeError names what cannot be packed."""
        content = encode(sample)
        if len(content) > self.most_bytes:
            raise SampleTooLarge(
                f"sample {index} takes {len(content)} bytes, and {self._what} {self.most_bytes}; {self._mend}, or cut "
                "longer samples in the data set"
            )
        return np.frombuffer(content, np.uint8)

    def ragged(self, mean: float) -> RaggedSize:
        """What the ring must know of the samples, which take so many bytes in the mean."""
        return RaggedSize(self.most_bytes, max(math.ceil(min(mean, self.most_bytes)), 1))


def collated(samples: np.ndarray, collate: Callable[[list[Any]], Any]) -> Any:
    """Return the batch that a task makes of packed samples, an array of bytes each."""
    return collate([decode(sample.tobytes()) for sample in samples])
