"""The division of the ring's memory: the control block of the ring and of each lane, and the lanes' samples.

Every (reader, maker) pair of a lane has three semaphores:

* filled: the writer adds a token for each portion that it has published, the reader takes it before it reads the slot;
* freed: the reader adds a token for each portion that it has released, the writer takes it before it fills that anew;
* left: the reader adds its only token when it leaves.

A portion is what one writer fills of a slot: all of it where writers take turns, its own samples where they share it.
So each access to a slot by one side comes after a token from the other side, and no flag is ever polled. A bell for
each writer is rung with every freed and left, so that a writer of many lanes sleeps in one place.

Ragged samples are bytes that lie one behind the other, without a gap.

Each maker has a region of the lane's bytes, which it fills in a circle: every sample begins where the one before it
ended, and goes on at the region's start where it comes to its end. A table says for each sample of each slot where it
begins, and how long it is; so the slots, their tokens and the readers' positions are those of any lane.

A maker fills its next slot, or its portion of it, only while as many bytes are free as the largest samples would take.
Nobody waits for ever:

* a region has room for two slots of largest samples. So where all that a maker has published is released, it can fill
  its next slot, whatever its samples are;
* consider a reader that waits, and behind which no other one is. All slots before those that it holds are released by
  everybody. It holds no slot while it waits for more than `RaggedLane.certain` slots from the first that it holds, and
  so many find room together, even of largest samples: each maker's of these fit into its region. So the slot for which
  it waits will come;
* all other readers wait for that one at most, and it goes on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocess.ring.shared_memory import SEMAPHORE_BYTES, SemaphoreArray, is_alive, own_identity
from preprocess.samples.layout import Array, Indices, SampleLayout, take_targets

_LINE = 64
_ENTRY = 16  # bytes of the table for a sample: where it begins, and its length, int64
_SLOTS_OF_LARGEST = 2


def _ragged_lane_bytes(layout: SampleLayout, slots: int, slot_samples: int, makers: int) -> int:
    """Return the bytes of a lane for so many slots of samples of the mean length, and two of the largest a maker."""
    largest = makers * _largest_slot(layout, slot_samples)
    content = max(slots * slot_samples * _mean(layout) + largest, _SLOTS_OF_LARGEST * largest)
    return slots * slot_samples * _index_bytes(layout) + content + (2 + makers) * _LINE


def _ragged_slots_that_fit(layout: SampleLayout, size: int, slot_samples: int, makers: int) -> int:
    """Return how many slots of samples of the mean length a lane of `size` bytes holds, a multiple of the makers.

    Fewer than two for each maker, where it has no room for two slots of largest samples for each.
    """
    largest, rest = makers * _largest_slot(layout, slot_samples), size - (2 + makers) * _LINE
    index = slot_samples * _index_bytes(layout)
    of_mean = (rest - largest) // (index + slot_samples * _mean(layout))
    indexed = (rest - _SLOTS_OF_LARGEST * largest) // index
    slots = min(max(of_mean, _SLOTS_OF_LARGEST * makers), indexed)
    return max(slots, 0) // makers * makers


class RaggedLane:
    """A lane's bytes, divided for ragged samples.

    Args:
        layout: how the samples are laid out.
        data: the lane's bytes, uint8.
        slots: how many it holds at most.
        slot_samples: samples of each.
        makers: how many fill it.

    Attributes:
        targets: the targets of the whole lane, (samples, ...), see `SampleLayout.targets_in`.
        most: bytes of the largest sample.
        portion_bytes: what a maker's samples of one slot take, at most.
    """

    def __init__(self, layout: SampleLayout, data: Array, slots: int, slot_samples: int, makers: int) -> None:
        samples = slots * slot_samples
        self.most, self.portion_bytes = layout.input_bytes, _largest_slot(layout, slot_samples)
        self._data, self._slot_samples, self._layout = data, slot_samples, layout
        targets, regions = _lines(samples * _ENTRY), _lines(samples * _ENTRY) + _lines(samples * layout.target_bytes)
        self._table: Indices = data[: samples * _ENTRY].view(np.int64).reshape(samples, 2)
        self.targets = layout.targets_in(data[targets:], samples)
        self._region_bytes = (data.nbytes - regions) // makers
        self._regions = regions

    @property
    def certain(self) -> int:
        """Portions of each maker that find room together, whatever their samples are."""
        return self._region_bytes // self.portion_bytes

    def take(self, places: Indices, out: tuple[Array, Array]) -> tuple[Array, Array]:
        """Copy the samples at some places into (inputs, targets), inputs being an array of objects."""
        inputs, targets = out
        data, size = self._data, self._region_bytes
        for row, (start, length) in enumerate(self._table[places].tolist()):
            stop = start + length
            end = self._regions + ((start - self._regions) // size + 1) * size if length else stop
            inputs[row] = (
                data[start:stop].copy()
                if stop <= end
                else np.concatenate([data[start:end], data[end - size : stop - size]])
            )
        take_targets(self.targets, places, targets)
        return out

    def region(self, maker: int) -> ByteRegion:
        """The region that the maker with this place among all fills."""
        return ByteRegion(
            self._data, self._regions + maker * self._region_bytes, self._region_bytes, self.portion_bytes
        )

    def slot(self, region: ByteRegion, first: int) -> RaggedSlot:
        """The inputs of the slot whose first sample has the place `first`, to be filled from a region."""
        return RaggedSlot(region, self._table[first : first + self._slot_samples], self.most)


class ByteRegion:
    """One maker's bytes of a lane, as that one fills them.

    Args:
        data: the lane's bytes.
        start, size: which of them.
        reserve: bytes that are free before a slot is filled.

    Attributes:
        start: likewise.
        needed: how many of the slots that were filled must be released before the next one is filled.
    """

    def __init__(self, data: Array, start: int, size: int, reserve: int) -> None:
        self._data, self.start, self._size, self._most = data, start, size, size - reserve
        self._head = 0  # where the next sample begins
        self._held = 0  # bytes of the slots that need not be released yet
        self._slots: deque[int] = deque()  # bytes of each of these
        self.needed = 0

    def write(self, offset: int, sample: Array) -> int:
        """Write a sample so many bytes behind the slots that were filled; returns where it begins in the lane."""
        begin = (self._head + offset) % self._size
        first = min(sample.nbytes, self._size - begin)
        place = self.start + begin
        self._data[place : place + first] = sample[:first]
        if first < sample.nbytes:
            self._data[self.start : self.start + sample.nbytes - first] = sample[first:]
        return place

    def read(self, start: int, length: int) -> tuple[Array, Array]:
        """The two parts of what lies there; the second one is at the region's start."""
        first = min(length, self.start + self._size - start)
        return self._data[start : start + first], self._data[self.start : self.start + length - first]

    def filled(self, size: int) -> None:
        """A slot was filled with so many bytes."""
        self._head = (self._head + size) % self._size
        self._slots.append(size)
        self._held += size
        while self._held > self._most:
            self._held -= self._slots.popleft()
            self.needed += 1


@dataclass(frozen=True)
class PackedBytes:
    """Bytes of a ring that ragged samples have taken: their own, and padding between and behind them."""

    samples: int = 0
    padding: int = 0

    def __add__(self, other: PackedBytes) -> PackedBytes:
        return PackedBytes(self.samples + other.samples, self.padding + other.padding)


class RaggedSlot:
    """The inputs of a slot of ragged samples, to be written row by row; of a divided lane, some of its rows.

    Attributes:
        used: bytes of the region that it has taken.
    """

    def __init__(self, region: ByteRegion, table: Indices, most: int) -> None:
        self._region, self._table, self._most = region, table, most
        self._last = (-1, 0)  # the row that was written last, and where it begins
        self._rows: set[int] = set()
        self.used = 0

    def __len__(self) -> int:
        return len(self._table)

    def __setitem__(self, row: int, sample: Array) -> None:
        """Write a sample, (any,) uint8; the row that was written last may be written again.

        Raises:
            ValueError: it is larger than the largest.
        """
        if sample.nbytes > self._most:
            raise ValueError(f"the sample has {sample.nbytes} bytes, the largest {self._most}")
        if row == self._last[0]:
            self.used = self._last[1]
        elif row in self._rows:
            raise ValueError(f"row {row} of the slot was written before others; only the last may be written again")
        else:
            self._rows.add(row)
        self._last = row, self.used
        self._table[row] = self._region.write(self.used, sample), sample.nbytes
        self.used += sample.nbytes

    @property
    def packed_bytes(self) -> PackedBytes:
        """The bytes that were written."""
        samples = int(self._table[list(self._rows), 1].sum())
        return PackedBytes(samples, self.used - samples)

    def end(self) -> None:
        """Let the rows that were not written, past the lane's end, have no bytes; for a slot that is filled by one."""
        self._table[[row for row in range(len(self)) if row not in self._rows]] = self._region.start, 0

    def packed(self, rows: Sequence[int] | Indices | None) -> Array:
        """Return some rows, or all, as one message: their lengths, int64, and their bytes one behind the other."""
        entries = self._table if rows is None else self._table[rows]
        parts = [np.ascontiguousarray(entries[:, 1]).view(np.uint8)]
        for start, length in entries.tolist():
            parts += self._region.read(start, length)
        return np.concatenate(parts)

    def room(self, rows: Indices | None) -> Array:
        """Return memory for such a message of some rows, or all, whatever their lengths are."""
        return np.empty((len(self) if rows is None else len(rows)) * (8 + self._most), np.uint8)

    def unpack(self, message: Array, rows: Indices | None) -> None:
        """Write the samples of such a message."""
        places = range(len(self)) if rows is None else rows.tolist()
        start = 8 * len(places)
        for row, length in zip(places, message[:start].view(np.int64).tolist(), strict=True):
            self[row] = message[start : start + length]
            start += length


@dataclass
class PassedOn:
    """A message of ragged samples that goes on to the next node, and not into this one's ring."""

    content: Array

    def packed(self, rows: Any) -> Array:
        """The message, of whatever rows."""
        return self.content

    def room(self, rows: Any) -> Array:
        """Memory for it, if it has any rows."""
        return self.content if rows is None or len(rows) else self.content[:0]

    def unpack(self, message: Array, rows: Any) -> None:
        """Note how long it is."""
        self.content = message


def _mean(layout: SampleLayout) -> int:
    return max(layout.mean_bytes or 0, 1)


def _index_bytes(layout: SampleLayout) -> int:
    """Bytes of a sample beside its own."""
    return _ENTRY + layout.target_bytes


def _largest_slot(layout: SampleLayout, slot_samples: int) -> int:
    """Bytes of a slot of largest samples."""
    return slot_samples * max(layout.input_bytes, 1)


def _lines(size: int) -> int:
    return -(-size // _LINE) * _LINE


Integers = npt.NDArray[np.int64]

_NOBODY = (2**31 - 1, 1)  # an identity that no process has: ids end below it
_PAGE = 4096
_WORDS = 5


@dataclass(frozen=True)
class RingShape:
    """The dimensions of one node's ring.

    Attributes:
        lanes: number of lanes.
        lane_bytes: bytes for the samples of one lane; a multiple of a page.
        slot_samples: samples of a slot.
        readers: most readers on the node; they are named 0 to readers - 1 (ranks of the node's communicator).
        writers: preprocessors of the whole run; they are named 0 to writers - 1.
        makers: most of them that fill one lane; 0: all. Every reader of a lane has semaphores with so many.
    """

    lanes: int
    lane_bytes: int
    slot_samples: int
    readers: int
    writers: int
    makers: int = 0

    def __post_init__(self) -> None:
        smallest = min(self.lanes, self.lane_bytes, self.slot_samples, self.readers, self.writers)
        if smallest < 1:
            raise ValueError(f"{self}: each of these is at least 1")

    @property
    def most_makers(self) -> int:
        """Writers that can fill one lane."""
        return min(self.makers or self.writers, self.writers)

    @property
    def ring_control_bytes(self) -> int:
        """Bytes of the ring's own control block."""
        return _round(8 * (1 + 2 * self.readers + 2 * self.writers), _LINE) + SEMAPHORE_BYTES * self.writers

    @property
    def lane_control_bytes(self) -> int:
        """Bytes of one lane's control block."""
        semaphores = 1 + self.readers + self.writers + 3 * self.readers * self.most_makers
        return _round(8 * (_WORDS + 2 * self.readers + 2 * self.writers), _LINE) + SEMAPHORE_BYTES * semaphores

    @property
    def bytes(self) -> int:
        """Bytes of the whole ring."""
        lane = self.lane_control_bytes + _round(self.lane_bytes, _LINE)
        return _round(self.ring_control_bytes + self.lanes * lane, _PAGE)


class _Carver:
    """Hands out consecutive stretches of memory, each from a cache line's start."""

    def __init__(self, memory: Array) -> None:
        self._memory = memory
        self._start = 0

    def take(self, size: int) -> Array:
        stop = self._start + _round(size, _LINE)
        if stop > self._memory.nbytes:
            raise ValueError(f"the ring takes more than the {self._memory.nbytes} bytes that it got")
        part = self._memory[self._start : stop]
        self._start = stop
        return part

    def semaphores(self, *shape: int) -> SemaphoreArray:
        return SemaphoreArray(self.take(SEMAPHORE_BYTES * math.prod(shape)), shape)


class RingControl:
    """The ring-wide control block: who the readers and writers are, and the writers' bells."""

    def __init__(self, carver: _Carver, shape: RingShape) -> None:
        words = carver.take(8 * (1 + 2 * shape.readers + 2 * shape.writers)).view(np.int64)
        self._comparable = words[:1]
        people = words[1 : 1 + 2 * (shape.readers + shape.writers)].reshape(-1, 2)
        self._readers, self._writers = people[: shape.readers], people[shape.readers :]
        self.bells = carver.semaphores(shape.writers)

    def initialise(self, comparable: bool) -> None:
        """Make an unused ring; comparable: process ids mean the same to all processes of the node."""
        self._comparable[0] = comparable
        self.bells.initialise()

    def register_reader(self, reader: int) -> None:
        """Note that this process is the reader."""
        self._readers[reader] = own_identity()

    def register_writer(self, writer: int) -> None:
        """Note that this process fills the writer's slots on this node."""
        self._writers[writer] = own_identity()

    def reader_is_dead(self, reader: int) -> bool:
        """Say whether the reader's process is known to be dead."""
        return self._is_dead(self._readers[reader])

    def writer_is_dead(self, writer: int) -> bool:
        """Say whether the process that fills the writer's slots on this node is known to be dead."""
        return self._is_dead(self._writers[writer])

    def bury_writer(self, writer: int) -> None:
        """Let the writer be known to be dead, though it may never have come here."""
        self._writers[writer] = _NOBODY

    def reader_name(self, reader: int) -> str:
        """Return how an error names the reader."""
        return _name(f"reader {reader}", self._readers[reader])

    def writer_name(self, writer: int) -> str:
        """Return how an error names the writer."""
        return _name(f"preprocessor {writer}", self._writers[writer])

    def forget_the_dead(self) -> None:
        """Let roles whose processes are dead be taken by others."""
        for people in (self._readers, self._writers):
            for identity in people:
                if self._is_dead(identity):
                    identity[:] = 0

    def _is_dead(self, identity: Integers) -> bool:
        pid, started = int(identity[0]), int(identity[1])
        if (pid, started) == _NOBODY:
            return True
        return bool(self._comparable[0]) and pid != 0 and not is_alive(pid, started)


class LaneControl:
    """One lane's control block and the bytes of its samples.

    Attributes:
        words: [generation, slots, makers, portions, ahead] of the current opening; portions: how many makers fill each
            slot; ahead: how many slots may lie ready for the foremost reader.
        active: per reader, 1 from the opening until it leaves or is found dead.
        cursors: per reader, the lane position up to which it has released; for people, nothing relies on it.
        writing: per writer, 1 from the opening until it closes.
        order: the writers that fill the slots in turn; the first so many are those of the current opening.
        opened_readers, opened_writers: a token for each opening that a reader or writer may attach to.
        detached: a token whenever a reader or a writer goes.
        filled, freed, left: see the module; per reader, and per place of a writer among the makers of the opening.
        data: the samples, uint8.
    """

    def __init__(self, carver: _Carver, shape: RingShape) -> None:
        readers, writers = shape.readers, shape.writers
        words = carver.take(8 * (_WORDS + 2 * readers + 2 * writers)).view(np.int64)
        self.words, people = words[:_WORDS], words[_WORDS:]
        self.active, self.cursors = people[: 2 * readers].reshape(2, readers)
        self.writing, self.order = people[2 * readers :][: 2 * writers].reshape(2, writers)
        self.opened_readers = carver.semaphores(readers)
        self.opened_writers = carver.semaphores(writers)
        self.detached = carver.semaphores(1)
        self.filled, self.freed, self.left = (carver.semaphores(readers, shape.most_makers) for _ in range(3))
        self.data = carver.take(shape.lane_bytes)

    def initialise(self) -> None:
        """Make a lane that was never opened."""
        for semaphores in (self.opened_readers, self.opened_writers, self.detached):
            semaphores.initialise()

    def reset(self) -> None:
        """Set the tokens of the last opening to none; nobody may use the lane meanwhile."""
        for semaphores in (self.filled, self.freed, self.left):
            semaphores.initialise()
        for numbers in (self.active, self.cursors, self.writing):
            numbers[:] = 0

    @property
    def makers(self) -> list[int]:
        """The writers of the current opening: portion p is filled by makers[p % P], P their number."""
        found: list[int] = self.order[: int(self.words[2])].tolist()
        return found

    @property
    def ahead(self) -> int:
        """Slots that may lie ready for the foremost reader."""
        return int(self.words[4])

    @property
    def portions(self) -> int:
        """Portions of a slot: 1 where makers take turns, P where each fills its samples of every slot."""
        return int(self.words[3])

    def blocks(self, layout: SampleLayout, samples: int) -> tuple[Array, Array]:
        """Return the lane's bytes as (inputs, targets) of that many samples, (samples, ...) each.

        Targets are as `SampleLayout.targets_in` gives them.
        """
        inputs_end = samples * layout.input_bytes
        start = _round(inputs_end, _LINE)
        inputs = self.data[:inputs_end].view(layout.input_dtype).reshape(samples, *layout.input_shape)
        return inputs, layout.targets_in(self.data[start:], samples)


def divide(memory: Array, shape: RingShape) -> tuple[RingControl, list[LaneControl]]:
    """Divide a ring's memory, uint8, into its control blocks."""
    carver = _Carver(memory)
    return RingControl(carver, shape), [LaneControl(carver, shape) for _ in range(shape.lanes)]


def lane_bytes(layout: SampleLayout, samples: int, slot_samples: int, writers: int) -> int:
    """Return the bytes of a lane that holds at least that many samples, and two slots of each writer.

    Of ragged samples it holds so many that have the mean length, and two slots of the largest ones of each writer.
    """
    slots = max(_round(math.ceil(samples / slot_samples), writers), 2 * writers)
    if layout.is_ragged:
        return _ragged_lane_bytes(layout, slots, slot_samples, writers)
    return slots * slot_samples * (layout.input_bytes + layout.target_bytes) + _LINE


def slots_that_fit(layout: SampleLayout, size: int, slot_samples: int, writers: int) -> int:
    """Return how many slots of such samples a lane of `size` bytes holds, a multiple of the writers."""
    if layout.is_ragged:
        return _ragged_slots_that_fit(layout, size, slot_samples, writers)
    slots = (size - _LINE) // (slot_samples * (layout.input_bytes + layout.target_bytes))
    return max(slots, 0) // writers * writers


def bytes_needed(lanes: int, lane_bytes: int, slot_samples: int, readers: int, writers: int, makers: int = 0) -> int:
    """Return the bytes of shared memory that a node's ring takes; see RingShape for the arguments."""
    return RingShape(lanes, lane_bytes, slot_samples, readers, writers, makers).bytes


def each(numbers: Integers) -> Iterator[int]:
    """Yield the indices of the flags that are set."""
    return (place for place, flag in enumerate(numbers.tolist()) if flag)


def _name(role: str, identity: Integers) -> str:
    return f"{role} (process {identity[0]})" if identity[0] else f"{role} (not attached yet)"


def _round(size: int, unit: int) -> int:
    return -(-size // unit) * unit
