"""How the ring's memory is divided: the control block of the ring and of each lane, and the lanes' samples.

Every (reader, writer) pair of a lane has three semaphores:

* filled: the writer adds a token for each portion that it has published, the reader takes it before it reads the slot;
* freed: the reader adds a token for each portion that it has released, the writer takes it before it fills that anew;
* left: the reader adds its only token when it leaves.

A portion is what one writer fills of a slot: all of it where writers take turns, its own samples where they share it.
So each access to a slot by one side comes after a token from the other side, and no flag is ever polled.
A bell for each writer is rung with every freed and left, so that a writer of many lanes sleeps in one place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from preprocess.ring.process import is_alive, own_identity
from preprocess.ring.ragged_lane import ragged_lane_bytes, ragged_slots_that_fit
from preprocess.ring.semaphore import SEMAPHORE_BYTES, SemaphoreArray
from preprocess.samples.layout import Array, SampleLayout

Integers = npt.NDArray[np.int64]

_LINE = 64
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
    """

    lanes: int
    lane_bytes: int
    slot_samples: int
    readers: int
    writers: int

    def __post_init__(self) -> None:
        smallest = min(self.lanes, self.lane_bytes, self.slot_samples, self.readers, self.writers)
        if smallest < 1:
            raise ValueError(f"{self}: each of these is at least 1")

    @property
    def ring_control_bytes(self) -> int:
        """Bytes of the ring's own control block."""
        return _round(8 * (1 + 2 * self.readers + 2 * self.writers), _LINE) + SEMAPHORE_BYTES * self.writers

    @property
    def lane_control_bytes(self) -> int:
        """Bytes of one lane's control block."""
        semaphores = 1 + self.readers + self.writers + 3 * self.readers * self.writers
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
        filled, freed, left: see the module.
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
        self.filled = carver.semaphores(readers, writers)
        self.freed = carver.semaphores(readers, writers)
        self.left = carver.semaphores(readers, writers)
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
        return ragged_lane_bytes(layout, slots, slot_samples, writers)
    return slots * slot_samples * (layout.input_bytes + layout.target_bytes) + _LINE


def slots_that_fit(layout: SampleLayout, size: int, slot_samples: int, writers: int) -> int:
    """Return how many slots of such samples a lane of `size` bytes holds, a multiple of the writers."""
    if layout.is_ragged:
        return ragged_slots_that_fit(layout, size, slot_samples, writers)
    slots = (size - _LINE) // (slot_samples * (layout.input_bytes + layout.target_bytes))
    return max(slots, 0) // writers * writers


def bytes_needed(lanes: int, lane_bytes: int, slot_samples: int, readers: int, writers: int) -> int:
    """Return the bytes of shared memory that a node's ring takes; see RingShape for the arguments."""
    return RingShape(lanes, lane_bytes, slot_samples, readers, writers).bytes


def each(numbers: Integers) -> Iterator[int]:
    """Yield the indices of the flags that are set."""
    return (place for place, flag in enumerate(numbers.tolist()) if flag)


def _name(role: str, identity: Integers) -> str:
    return f"{role} (process {identity[0]})" if identity[0] else f"{role} (not attached yet)"


def _round(size: int, unit: int) -> int:
    return -(-size // unit) * unit
