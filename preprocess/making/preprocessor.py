"""The preprocessor: makes its share of the slots of every open lane, one at a time.

It lets room gather in lanes before it fills them, so that one wake fills several slots.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from preprocess.making.broadcast import BackOff, MakerPortion, NodeMap, RemoteNode, Traffic, TrafficCounter
from preprocess.making.dataset import Dataset
from preprocess.ring.lane_memory import PackedBytes
from preprocess.ring.ring import LaneWriter, Ring, Slot
from preprocess.samples.errors import LaneError, RingTimeout
from preprocess.samples.stream import LanePortions, LaneSpec
from preprocess.store.finished_samples import FinishedSamples, SlotPortion
from preprocess.store.sample_store import SampleStore, StoreStatistics

if TYPE_CHECKING:
    from mpi4py import MPI


_SHORTEST, _LONGEST = 1e-3, 5e-2
_LITTLE, _MUCH = 0.25, 0.5
_FEW = 8


class Gathering:
    """Pauses that grow to 50 ms while less than a quarter of a lane is free after them, and end where half of one is.

    A reader that gives back a slot at a time would wake its preprocessor for each; where trainers have all cores, each
    wake takes one of them away. Lanes of eight slots or fewer are filled at once, as they have little to wait with.
    """

    def __init__(self) -> None:
        self._seconds, self._filled = 0.0, dict[int, int]()

    def filled(self, lane: int, slots: int = 1) -> None:
        """Note slots of a lane that were filled."""
        self._filled[lane] = self._filled.get(lane, 0) + slots

    def next(self, lanes: Mapping[int, int]) -> float:
        """Return the seconds to let pass now; 0 where nothing was filled since the last pause.

        Args:
            lanes: open lanes, each with the slots that may lie ready in it.
        """
        filled, self._filled = self._filled, {}
        if not filled:
            return 0.0
        if min(lanes.values(), default=0) <= _FEW:
            self._seconds = 0.0
            return 0.0
        used = max(slots / lanes.get(lane, slots) for lane, slots in filled.items())
        if used > _MUCH:
            self._seconds = self._seconds / 2 if self._seconds > _SHORTEST else 0.0
        elif used < _LITTLE:
            self._seconds = min(max(1.5 * self._seconds, _SHORTEST), _LONGEST)
        return self._seconds


_MOST_TOGETHER = 8
"""Slots that are copied together at most. What is done once for them would otherwise be most of what a copy costs."""


class Made(NamedTuple):
    """Numbers of samples that were made or copied, and of the slots that they fill."""

    samples: int
    slots: int


@dataclass(frozen=True)
class LaneContents:
    """The contents of a lane, and what makes them.

    Attributes:
        spec: what the lane carries.
        dataset: makes it.
        portions: whose the samples of each slot are, where makers fill slots together; else None.
        store: keeps what this preprocessor has prepared, if anything is kept.
        finished: keeps what it has finished, if anything is kept.
    """

    spec: LaneSpec
    dataset: Dataset
    portions: LanePortions | None = None
    store: SampleStore | None = None
    finished: FinishedSamples | None = None


class FilledLane:
    """A lane from the moment a preprocessor is told to fill it until nothing of it is under way any more.

    Args:
        ring: the ring of this node.
        index: the preprocessor's number.
        filling: what the lane carries, and what makes it.
        next_node: gives the first of the other nodes that read it, if any; asked once the lane is open.
        patience: seconds that the opening on this node may take.

    Attributes:
        closing: set when no more slots should be filled.
        packed: what the ragged samples of the last slot have taken.
        is_over: nothing is left to do.
    """

    def __init__(
        self,
        ring: Ring,
        index: int,
        filling: LaneContents,
        next_node: Callable[[LaneSpec], RemoteNode | None],
        patience: float,
    ) -> None:
        self.spec = filling.spec
        self.closing = self.is_over = False
        self.packed = PackedBytes()
        self._ring, self._index, self._next_node, self._patience = ring, index, next_node, patience
        self._dataset, self._portions = filling.dataset, filling.portions
        self._store, self._finished = filling.store, filling.finished
        self._since: float | None = None  # when it was first tried to attach
        self._writer: LaneWriter | None = None
        self._remote: RemoteNode | None = None  # until it has left
        if self._finished is not None:
            self._finished.open(self.spec)

    @property
    def slots(self) -> int:
        """Slots that may lie ready at once; 0 as long as the lane is not open."""
        return 0 if self._writer is None else self._writer.ahead // self._ring.shape.slot_samples

    @property
    def needs_attention(self) -> bool:
        """Something is under way that does not ring this preprocessor's bell."""
        return self._writer is None or self.closing or self._remote is not None

    def progress(self) -> None:
        """Do what can be done without waiting: attach, send, close.

        Raises:
            RingTimeout: the lane was not opened on this node in time.
        """
        if self._writer is None:
            self._attach()
        self._progress_remote()
        if self.closing and self._writer is not None and self._remote is None:
            self._writer.close()
            self.is_over = True
            if self._store is not None:
                self._store.close(self.spec.lane)
            if self._finished is not None:
                self._finished.close(self.spec)

    @property
    def is_deserted(self) -> bool:
        """The lane is open and nobody reads it any more."""
        return self._writer is not None and self._writer.deserted

    def has_room(self) -> bool:
        """Say whether a slot may be filled now."""
        if self._writer is None or self.closing:
            return False
        end = self.spec.schedule.end
        return (end is None or self._writer.next_slot.start < end) and self._writer.has_space()

    def make_slots(self) -> Made:
        """Fill and publish the next slot, for which there is room, or some in a row whose samples are copied."""
        return self._copied_together() or self._made_alone()

    def _made_alone(self) -> Made:
        assert self._writer is not None
        slot = self._writer.next_slot
        made = 0
        for made in self._filling(slot):  # noqa: B007 the last number counts
            if self._remote is not None:  # slots sent before move on meanwhile
                self._remote.progress()
        if self.spec.layout.is_ragged:
            self.packed = slot.inputs.packed_bytes
        self._writer.publish()
        return Made(made, 1)

    def _copied_together(self) -> Made | None:
        """Fill several slots at once, if they are for this node alone, and their samples are kept or can be copied."""
        assert self._writer is not None
        copies, finished = self._dataset.copies_many, self._finished
        if self._portions is not None or self._remote is not None or not (copies or finished is not None):
            return None
        slot, end = self._writer.in_a_row(_MOST_TOGETHER), self.spec.schedule.end
        samples = (slot.stop if end is None else min(slot.stop, end)) - slot.start
        slots = -(-samples // self._ring.shape.slot_samples)
        if slots < 2:
            return None
        if finished is None or not finished.copy(self._portion(slot)):
            if not copies:
                return None
            deque(self._making(slot), maxlen=0)
            if finished is not None:
                finished.keep(self._portion(slot))
        self._writer.publish(slots)
        return Made(samples, slots)

    def _filling(self, slot: Slot) -> Iterator[int]:
        """Copy or make a slot's samples, or this preprocessor's part of them; yields how many lie there."""
        if self._finished is None:
            yield from self._making(slot)
            return
        portion = self._portion(slot)
        if self._finished.copy(portion):
            self._settle(portion, slot.sequence)
            yield len(portion.rows)
        else:
            yield from self._making(slot)
            self._finished.keep(self._to_keep(portion, slot.sequence))

    def _to_keep(self, portion: SlotPortion, sequence: int) -> SlotPortion:
        """The part of a portion that may be kept as it is: not what the store has as it is, too."""
        if self._store is None or self._portions is None:
            return portion
        _, keys = self._portions.portion(self._index, sequence)
        left = np.ones(len(portion.rows), np.bool_)
        for span, own in portion.spans():
            finished = self._dataset.preparation(span.kind).kept_are_finished
            left[own] = not (finished and self._store.holds(keys[own]))
        return portion if left.all() else replace(portion, rows=portion.rows[left])

    def _portion(self, slot: Slot) -> SlotPortion:
        """Return this preprocessor's part of a slot: all up to the lane's end, where no other maker has one."""
        if self._portions is None:
            end = self.spec.schedule.end
            rows = np.arange(slot.stop - slot.start if end is None else min(slot.stop, end) - slot.start)
        else:
            rows, _ = self._portions.portion(self._index, slot.sequence)
        return SlotPortion(self.spec, slot.start, rows, slot.inputs, slot.targets)

    def _settle(self, portion: SlotPortion, sequence: int) -> None:
        """Let the store know that the lane has carried its samples, though they were not asked for."""
        if self._store is not None and self._portions is not None:
            _, keys = self._portions.portion(self._index, sequence)
            for span, own in portion.spans():
                self._store.settle(self.spec.lane, span.epoch, keys[own])

    def _making(self, slot: Slot) -> Iterator[int]:
        """Make them; yields how many are made, after each."""
        schedule, seed = self.spec.schedule, self.spec.stream.seed
        if self._portions is None:
            return self._dataset.fill(schedule, seed, slot.start, slot.inputs, slot.targets)
        rows, keys = self._portions.portion(self._index, slot.sequence)
        spans = schedule.spans(slot.start, slot.stop)
        return self._dataset.fill_rows(spans, seed, rows, keys, slot.inputs, slot.targets, self._store, self.spec.lane)

    def _progress_remote(self) -> None:
        if self._remote is None:
            return
        if self.closing:
            self._remote.end()
        if self._remote.has_left():
            self._remote = None

    def _attach(self) -> None:
        lane = self._ring.lanes[self.spec.lane]
        if self._since is None:
            self._since = time.monotonic()
        try:
            self._writer = lane.writer(self._index, self.spec.layout, self.spec.generation, timeout=0.0)
        except RingTimeout:
            if time.monotonic() - self._since > self._patience:
                raise
            return
        self._remote = self._next_node(self.spec)
        if self._remote is not None:
            self._writer.add_holder(self._remote)
        if self._store is not None and self._portions is not None:
            self._store.open(self.spec, self._portions)


_MOST_ASLEEP = 0.02
"""Seconds that it waits for room before a caller who is woken otherwise may look for what else there is."""


@dataclass(frozen=True)
class PreprocessorStatistics:
    """Counts of a preprocessor's work so far.

    Attributes:
        samples: samples laid into lanes.
        samples_of_lane: these by lane.
        sent: slots that were sent to other nodes, by (lane, node).
        stores: what the stores have done, by data set.
        samples_of_data: samples laid into lanes, by data set.
        packed: bytes that ragged samples took in this node's ring, and padding among them, by data set.
        copied: finished samples that were kept, and copied instead of made, by data set.
    """

    samples: int
    samples_of_lane: Mapping[int, int]
    sent: Mapping[tuple[int, int], Traffic] = field(default_factory=dict)
    stores: Mapping[str, StoreStatistics] = field(default_factory=dict)
    samples_of_data: Mapping[str, int] = field(default_factory=dict)
    packed: Mapping[str, PackedBytes] = field(default_factory=dict)
    copied: Mapping[str, int] = field(default_factory=dict)

    @property
    def prepared(self) -> dict[str, int]:
        """Samples that were read and prepared, by data set; all that no store had, neither prepared nor finished."""
        made = {name: count - self.copied.get(name, 0) for name, count in self.samples_of_data.items()}
        return {**made, **{name: store.prepared for name, store in self.stores.items()}}


class Preprocessor:
    """Preprocessor `index` of a ring: fills its part of the slots of the lanes that it is told to open.

    The caller drives it: `step` until it returns False, then `wait`, and its own messages in between. Opening and
    closing never block: they are finished by later steps, in the order in which they were asked for.

    Args:
        ring: the ring of this process's node.
        index: this preprocessor's number.
        datasets: the opened data sets by name.
        nodes: where the preprocessors and receivers are; None if all is on one node.
        comm: communicator for slots and nothing else; None if all is on one node.
        patience: seconds that a lane may take to be opened on this node.
        stores: by data set, what keeps prepared samples, for lanes whose makers fill slots together.
        finished: keeps finished samples; None: none are.
    """

    def __init__(
        self,
        ring: Ring,
        index: int,
        datasets: Mapping[str, Dataset],
        nodes: NodeMap | None = None,
        comm: MPI.Comm | None = None,
        patience: float = 60.0,
        stores: Mapping[str, SampleStore] | None = None,
        finished: FinishedSamples | None = None,
    ) -> None:
        if not 0 <= index < ring.shape.writers:
            raise ValueError(f"preprocessor {index}: this ring is for {ring.shape.writers} of them")
        self._ring, self._index, self._datasets = ring, index, datasets
        self._nodes, self._comm, self._patience = nodes, comm, patience
        self._stores, self._finished = dict(stores or {}), finished
        self._lanes: dict[int, list[FilledLane]] = {}
        self._next = 0  # whose turn it is among the open lanes
        self._samples_of_lane: dict[int, int] = {}
        self._samples_of_data: dict[str, int] = {}
        self._packed: dict[str, PackedBytes] = {}
        self._sent = TrafficCounter()
        self._back_off, self._gathering = BackOff(), Gathering()

    @property
    def statistics(self) -> PreprocessorStatistics:
        """The work so far."""
        by_lane = dict(self._samples_of_lane)
        stores = {name: store.statistics for name, store in self._stores.items()}
        by_data, packed = dict(self._samples_of_data), dict(self._packed)
        copied = dict(self._finished.copied) if self._finished is not None else {}
        return PreprocessorStatistics(
            sum(by_lane.values()), by_lane, self._sent.totals, stores, by_data, packed, copied
        )

    def open_lane(self, spec: LaneSpec) -> None:
        """Fill a lane, as soon as it is opened on this node and its last filling is over.

        Raises:
            LaneError: it is open and was not told to close, carries a data set that is not known here, or is for other
                preprocessors to fill.
        """
        if not spec.is_made_by(self._index):
            raise LaneError(f"preprocessor {self._index} has no part in lane {spec.lane}: {spec.makers} fill it")
        waiting = self._lanes.get(spec.lane, [])
        if waiting and not waiting[-1].closing:
            raise LaneError(f"preprocessor {self._index} still fills lane {spec.lane}; close it first")
        dataset = self._datasets.get(spec.stream.data)
        if dataset is None or dataset.layout != spec.layout:
            known = {name: str(known.layout) for name, known in self._datasets.items()}
            raise LaneError(f"lane {spec.lane} wants {spec.stream.data!r} as {spec.layout}; known here: {known}")
        portions, store = self._portions(spec, dataset), self._stores.get(dataset.name)
        portion = None if portions is None else MakerPortion(portions, self._index)
        next_node = partial(self._next_node, portion=portion)
        finished = self._finished if dataset.keeps_finished else None
        filling = LaneContents(spec, dataset, portions, store if spec.divided else None, finished)
        filled = FilledLane(self._ring, self._index, filling, next_node, self._patience)
        self._lanes[spec.lane] = [*waiting, filled]

    def close_lane(self, lane: int) -> None:
        """Fill a lane no more; nothing happens if it is not open. `is_closed` tells when that is done everywhere."""
        for filled in self._lanes.get(lane, []):
            filled.closing = True
        self._progress()

    def keep_awaited(self, data: str, seed: int, waiting: int | None, reading: Mapping[int, int]) -> None:
        """Keep finished samples of a stream that are read again, and no others; see `FinishedSamples.keep_awaited`."""
        if self._finished is not None:
            self._finished.keep_awaited(data, seed, waiting, reading)

    def keep_nothing(self) -> None:
        """Drop all finished samples."""
        if self._finished is not None:
            self._finished.clear()

    @property
    def index(self) -> int:
        """The number of this preprocessor."""
        return self._index

    @property
    def rests(self) -> bool:
        """Whether it has no lane to fill, and nothing of one is under way."""
        return not self._lanes

    def is_closed(self, lane: int) -> bool:
        """Say whether the lane is filled no more and nothing of it is under way to another node."""
        return lane not in self._lanes

    def is_deserted(self, lane: int) -> bool:
        """Say whether the lane is open here and nobody reads it any more, on any node; it still wants to be closed."""
        return lane in self._lanes and self._lanes[lane][-1].is_deserted

    def step(self) -> bool:
        """Make at most one slot, of the next lane that has room, or copy some, and say whether one was made.

        Raises:
            SampleError: the source or a transform raised. The slot stays unpublished: each step that comes to this
                lane tries again, until it is closed.
            RingTimeout: a lane was not opened on this node in time.
        """
        self._progress()
        filled = self._choose()
        if filled is None:
            return False
        made = filled.make_slots()
        self._back_off.reset()
        lane, data = filled.spec.lane, filled.spec.stream.data
        self._gathering.filled(lane, made.slots)
        self._samples_of_lane[lane] = self._samples_of_lane.get(lane, 0) + made.samples
        self._samples_of_data[data] = self._samples_of_data.get(data, 0) + made.samples
        if filled.spec.layout.is_ragged:
            self._packed[data] = self._packed.get(data, PackedBytes()) + filled.packed
        return True

    def wait(self, timeout: float, rest: Callable[[float], object] | None = None) -> None:
        """Sleep until a lane may have room, or until some has gathered, for at most so many seconds; only shortly while
        MPI has work to do.

        Args:
            rest: sleeps while room gathers, for so many seconds or until the caller has something to do; None: nothing
                can come meanwhile.
        """
        lanes = [filled for waiting in self._lanes.values() for filled in waiting]
        if any(filled.needs_attention for filled in lanes):
            timeout = min(timeout, self._back_off.next())
        elif pause := self._gathering.next({filled.spec.lane: filled.slots for filled in lanes}):
            (rest or time.sleep)(min(pause, timeout))
            return
        self._ring.control.bells.wait(self._index, seconds=timeout if rest is None else min(timeout, _MOST_ASLEEP))
        self._ring.control.bells.drain(self._index)

    def _progress(self) -> None:
        for lane, waiting in list(self._lanes.items()):
            waiting[0].progress()
            if waiting[0].is_over:
                waiting.pop(0)
                self._back_off.reset()
            if not waiting:
                del self._lanes[lane]

    def _choose(self) -> FilledLane | None:
        """Take turns among the open lanes; the first one that has room."""
        lanes = [waiting[0] for waiting in self._lanes.values()]
        for offset in range(len(lanes)):
            place = (self._next + offset) % len(lanes)
            if lanes[place].has_room():
                self._next = place + 1
                return lanes[place]
        return None

    def _portions(self, spec: LaneSpec, dataset: Dataset) -> LanePortions | None:
        """Return the owners of the samples of its slots, where makers fill them together."""
        shape = self._ring.shape
        return LanePortions(spec, shape.slot_samples, shape.writers, dataset.orders) if spec.divided else None

    def _next_node(self, spec: LaneSpec, portion: MakerPortion | None) -> RemoteNode | None:
        if self._nodes is None or self._comm is None:
            return None
        nodes, index = self._nodes, self._index
        node = nodes.next_node(index, nodes.maker_nodes[index], spec)
        if node is None:
            return None
        channel = nodes.channel(index, spec.lane)
        on_sent = partial(self._sent.count, spec.lane, node)
        return RemoteNode(self._comm, node, nodes.receivers[node], channel, on_sent, portion)
