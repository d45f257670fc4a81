"""One opening of a lane as the preprocessor that fills it sees it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from preprocess.making.broadcast import RemoteNode
from preprocess.making.dataset import Dataset
from preprocess.ring.lane_writer import LaneWriter, Slot
from preprocess.ring.ragged_lane import PackedBytes
from preprocess.ring.ring import Ring
from preprocess.samples.errors import RingTimeout
from preprocess.samples.owners import LanePortions
from preprocess.samples.stream import LaneSpec
from preprocess.store.finished_samples import FinishedSamples, SlotPortion
from preprocess.store.sample_store import SampleStore

_MOST_TOGETHER = 8
"""Slots that are copied together at most. What is done once for them would otherwise be most of what a copy costs."""


class Made(NamedTuple):
    """How many samples were made, or copied, and how many slots they fill."""

    samples: int
    slots: int


@dataclass(frozen=True)
class LaneContents:
    """What fills a lane.

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
        """How many slots may lie ready at once; 0 as long as the lane is not open."""
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
        end = self.spec.itinerary.end
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
        """Fill several slots at once, if they are for this node alone, and no sample of them is to be made."""
        assert self._writer is not None
        copied = self._dataset.is_copied
        if self._portions is not None or self._remote is not None or not (copied or self._finished is not None):
            return None
        slot, end = self._writer.in_a_row(_MOST_TOGETHER), self.spec.itinerary.end
        samples = (slot.stop if end is None else min(slot.stop, end)) - slot.start
        slots = -(-samples // self._ring.shape.slot_samples)
        if slots < 2:
            return None
        if copied:
            deque(self._making(slot), maxlen=0)
        elif self._finished is None or not self._finished.copy(self._portion(slot)):
            return None
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
        """This preprocessor's part of a slot: all up to the lane's end, where no other maker has one."""
        if self._portions is None:
            end = self.spec.itinerary.end
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
        itinerary, seed = self.spec.itinerary, self.spec.stream.seed
        if self._portions is None:
            return self._dataset.fill(itinerary, seed, slot.start, slot.inputs, slot.targets)
        rows, keys = self._portions.portion(self._index, slot.sequence)
        spans = itinerary.spans(slot.start, slot.stop)
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
