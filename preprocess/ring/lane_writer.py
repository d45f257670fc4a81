"""The writing end of a lane."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from preprocess.ring.control import LaneControl, RingControl, RingShape, each
from preprocess.ring.ragged_lane import ByteRegion, RaggedLane
from preprocess.ring.semaphore import fence
from preprocess.samples.errors import LaneClosed, LaneError, RingTimeout
from preprocess.samples.layout import Array, SampleLayout

#: Seconds between two looks whether the readers that hold a slot still live.
_LIVENESS_INTERVAL = 0.25
_NOTHING: Array = np.empty(0, np.uint8)


@dataclass(frozen=True)
class Slot:
    """A place for consecutive samples of a lane.

    Attributes:
        sequence: number of the slot in the lane; slot s is filled by maker s % P, or its portion by each.
        start: lane position of its first sample.
        inputs: (slot_samples, ...), to be written; of ragged samples a `RaggedSlot`.
        targets: (slot_samples, ...), to be written; as `SampleLayout.targets_in` gives them.
    """

    sequence: int
    start: int
    inputs: Any
    targets: Array

    @property
    def stop(self) -> int:
        """Lane position after its last sample."""
        return self.start + len(self.inputs)


class SlotHolder(Protocol):
    """Somebody who needs each published slot for a while: a reader of this node, or another node."""

    @property
    def name(self) -> str:
        """How an error names it."""
        ...

    def publish(self, slot: Slot) -> None:
        """Tell it that a slot is filled."""
        ...

    def has_released(self, slots: int) -> bool:
        """Say whether it has given back that many of the slots that were published to it."""
        ...

    def has_left(self) -> bool:
        """Say whether it needs none of the slots any more."""
        ...

    def is_dead(self) -> bool:
        """Say whether it is known to be dead; asked seldom."""
        ...


class _LocalReader:
    """A reader of this node as a holder of one writer's slots."""

    def __init__(self, reader: int, writer: int, ring: RingControl, control: LaneControl) -> None:
        self._pair = (reader, writer)
        self._ring, self._control = ring, control
        self._released = 0

    @property
    def name(self) -> str:
        return self._ring.reader_name(self._pair[0])

    def publish(self, slot: Slot) -> None:
        self._control.filled.post(*self._pair)

    def has_released(self, slots: int) -> bool:
        while self._released < slots and self._control.freed.try_wait(*self._pair):
            self._released += 1
        return self._released >= slots

    def has_left(self) -> bool:
        return self._control.left.try_wait(*self._pair)

    def is_dead(self) -> bool:
        if not self._ring.reader_is_dead(self._pair[0]):
            return False
        self._control.active[self._pair[0]] = 0
        return True


class LaneWriter:
    """One writer of a lane; made by `Lane.writer`. As maker k of P it fills the slots k, k + P, k + 2 P ...

    The number of slots of a lane is a multiple of P, so that each place in memory has one writer per opening. Where
    the lane is divided it comes to every slot, and fills those places there that are its own.

    Attributes:
        holders: who must release a slot before it is filled again.
        samples: how many samples the lane holds at once.
        ahead: how many of them may lie ready for the foremost holder, so that the others can fall back that far.
    """

    def __init__(
        self, number: int, writer: int, layout: SampleLayout, shape: RingShape, ring: RingControl, control: LaneControl
    ) -> None:
        self._number, self._writer, self._shape = number, writer, shape
        self._ring, self._control = ring, control
        self._slots, makers = int(control.words[1]), control.makers
        divided = control.portions > 1
        self._place, self._makers = (0, 1) if divided else (makers.index(writer), len(makers))
        self.samples, self.ahead = self._slots * shape.slot_samples, control.ahead * shape.slot_samples
        self._ragged: tuple[RaggedLane, ByteRegion] | None = None
        self._whole = not divided
        self._next: Slot | None = None
        if layout.is_ragged:
            lane = RaggedLane(layout, control.data, self._slots, shape.slot_samples, len(makers))
            self._ragged = lane, lane.region(makers.index(writer))
            self._inputs, self._targets = _NOTHING, lane.targets
        else:
            self._inputs, self._targets = control.blocks(layout, self.samples)
        self.holders: list[SlotHolder] = [_LocalReader(r, writer, ring, control) for r in each(control.active)]
        self._turn = 0  # slots published
        self._looked = time.monotonic()
        self._open = True

    @property
    def deserted(self) -> bool:
        """Nobody needs the written samples any more."""
        self.holders = [holder for holder in self.holders if not holder.has_left()]
        return not self.holders

    @property
    def next_slot(self) -> Slot:
        """The slot to fill next; touch it only once `has_space` has said yes."""
        if self._ragged is not None:
            return self._next_ragged(*self._ragged)
        return self._in_a_row(1)

    def in_a_row(self, most: int) -> Slot:
        """The slot to fill next with those behind it that may be filled now, too, as one, at most so many; touch it
        only once `has_space` has said yes. One alone where other writers fill those between, or samples are ragged.
        """
        if self._makers > 1 or self._ragged is not None or not self._whole:
            return self.next_slot
        most = min(most, self._slots - self._turn % self._slots)
        return self._in_a_row(next((count for count in range(1, most) if self._late(self._turn + count)), max(most, 1)))

    def _in_a_row(self, count: int) -> Slot:
        sequence, size = self.sequence(self._turn), self._shape.slot_samples
        start = sequence % self._slots * size
        rows = slice(start, start + count * size)
        return Slot(sequence, sequence * size, self._inputs[rows], self._targets[rows])

    def sequence(self, turn: int) -> int:
        """The number of the slot that this writer fills in its turn 0, 1 ..."""
        return self._place + turn * self._makers

    def add_holder(self, holder: SlotHolder) -> None:
        """Let somebody else hold the slots too, who gets each before the readers do; before the first is published."""
        if self._turn:
            raise LaneError(f"lane {self._number} already has published slots, a new holder would miss them")
        self.holders.insert(0, holder)

    def has_space(self) -> bool:
        """Say whether the next slot may be filled; False also when nobody reads. Does not wait."""
        self._check_open()
        if self.deserted:
            return False
        late = self._late(self._turn)
        if late and time.monotonic() - self._looked >= _LIVENESS_INTERVAL:
            self._looked = time.monotonic()
            self.holders = [holder for holder in self.holders if not holder.is_dead()]
            late = self._late(self._turn)
        if not late:
            self._next = None  # whoever fills it begins with it
        return not late and bool(self.holders)

    def publish(self, count: int = 1) -> None:
        """Hand the next slot, which was filled, to all holders; or so many in a row, to readers of this node alone."""
        slot = self.next_slot
        if self._ragged is not None:
            if self._whole:
                slot.inputs.end()
            self._ragged[1].filled(slot.inputs.used)
        for holder in self.holders:
            for _ in range(count):
                holder.publish(slot)
        self._turn += count
        self._next = None

    @contextmanager
    def slot(self, timeout: float) -> Iterator[Slot]:
        """Wait until the next slot may be filled, give it, and publish it afterwards unless an exception came.

        Args:
            timeout: seconds to wait for the slot.

        Raises:
            LaneClosed: nobody reads the lane any more.
            RingTimeout: the time is over; the text names the readers that hold the slot.
        """
        deadline = time.monotonic() + timeout
        while not self.has_space():
            if not self.holders:
                raise LaneClosed(f"nobody reads lane {self._number} any more")
            left = deadline - time.monotonic()
            if left <= 0:
                raise RingTimeout(self._timed_out(timeout))
            self._ring.bells.wait(self._writer, seconds=min(left, _LIVENESS_INTERVAL))
            self._ring.bells.drain(self._writer)
        yield self.next_slot
        self.publish()

    def close(self) -> None:
        """Write no more; nothing that was published is lost. May be called twice."""
        if not self._open:
            return
        self._open = False
        self._next = self._ragged = None
        del self._inputs, self._targets
        fence()
        self._control.writing[self._writer] = 0
        self._control.detached.ring(0)

    def late_holders(self) -> Iterable[str]:
        """Return the names of those on whom the next slot waits."""
        return [holder.name for holder in self._late(self._turn)]

    def _is_far_ahead(self, turn: int) -> bool:
        """Enough lies ready for whoever is the foremost, once so many slots are published."""
        turns = turn + 1 - self.ahead // self._shape.slot_samples // self._makers
        return not any(holder.has_released(turns) for holder in self.holders)

    def _late(self, turn: int) -> list[SlotHolder]:
        """Those on whom a turn's slot waits: who hold its place, or all where enough lies ready for the foremost."""
        if self._is_far_ahead(turn):
            return self.holders
        needed = turn + 1 - self._slots // self._makers
        if self._ragged is not None:
            needed = max(needed, self._ragged[1].needed)
        return [holder for holder in self.holders if not holder.has_released(needed)]

    def _next_ragged(self, lane: RaggedLane, region: ByteRegion) -> Slot:
        """The same until it is published, or filled anew."""
        if self._next is None:
            sequence, size = self.sequence(self._turn), self._shape.slot_samples
            start = sequence % self._slots * size
            targets = self._targets[start : start + size]
            self._next = Slot(sequence, sequence * size, lane.slot(region, start), targets)
        return self._next

    def _timed_out(self, timeout: float) -> str:
        slot = self.next_slot
        return (
            f"preprocessor {self._writer} waited {timeout:g} s for room in lane {self._number} for the positions "
            f"{slot.start} to {slot.stop - 1}: not released by {', '.join(self.late_holders())}"
        )

    def _check_open(self) -> None:
        if not self._open:
            raise LaneError(f"preprocessor {self._writer} has closed lane {self._number}")
