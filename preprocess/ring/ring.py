"""The ring: one copy of each sample for all processes of a node, in shared memory.

A ring has lanes, each carries one stream at a time. A slow reader makes the writers of its lane wait when the lane is
full, and with them the other readers: that is the pacing of FLEET (MLSys'20, section 3).

A lane has a writing end for each preprocessor that fills it, and a reading end for each reader of the node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from preprocess.ring.lane_memory import (
    ByteRegion,
    LaneControl,
    RaggedLane,
    RingControl,
    RingShape,
    divide,
    each,
    slots_that_fit,
)
from preprocess.ring.shared_memory import (
    SharedMemory,
    fence,
    forked_memory,
    node_memory,
    passed_memory,
    received_memory,
)
from preprocess.samples.errors import LaneClosed, LaneError, RingTimeout, WriterLost
from preprocess.samples.layout import ITSELF, Array, SampleLayout, plain_targets, substitutes_in, take_targets

if TYPE_CHECKING:
    from mpi4py import MPI


#: Seconds after which a waiting reader looks whether it should stop and whether the writer lives.
_TICK = 0.1
_LONGER = 2  # time-outs more, for a reader that others hold up


class LaneReader:
    """One reader of a lane; made by `Lane.reader`.

    Attributes:
        inputs: the inputs of the whole lane, (samples, ...): position p lies at p % samples. Read only; none of ragged
            samples, which are only copied.
        targets: the targets likewise; where samples name their substitutes they do not lie side by side.
        samples: how many samples the lane holds at once, at most.
        certain: how many may be awaited together: those that may lie ready; fewer of ragged ones.
        seconds_waited: time spent waiting for samples.
        on_waiting: called once as it begins to wait for samples: whoever makes them may let room gather.
    """

    def __init__(
        self, number: int, reader: int, layout: SampleLayout, shape: RingShape, ring: RingControl, control: LaneControl
    ) -> None:
        self._number, self._reader, self._shape = number, reader, shape
        self._layout, self._ring, self._control = layout, ring, control
        self._slots, self._makers, self._portions = int(control.words[1]), control.makers, control.portions
        self.samples = self._slots * shape.slot_samples
        self._held = self.samples  # surely
        self._ragged: RaggedLane | None = None
        if layout.is_ragged:
            self._hold_ragged(control.data)
        else:
            self.inputs, self._beside = control.blocks(layout, self.samples)
        self.targets = plain_targets(self._beside)
        self.certain = min(self._held, control.ahead * shape.slot_samples)
        self.inputs.flags.writeable = self.targets.flags.writeable = False
        self.seconds_waited = 0.0
        self.on_waiting: Callable[[], None] | None = None
        self._arrived = 0  # portions that are here
        self._released = 0  # slots that were given back
        self._open = True

    @property
    def available(self) -> int:
        """The lane position before which all samples are here."""
        return self._arrived // self._portions * self._shape.slot_samples

    @property
    def released(self) -> int:
        """The lane position before which all slots are given back."""
        return self._released * self._shape.slot_samples

    def wait(self, stop_position: int, timeout: float, stopped: Callable[[], bool] | None = None) -> bool:
        """Wait until all samples before a lane position are here.

        Args:
            stop_position: the lane position after the last sample wanted.
            timeout: seconds after which it gives up; three times as many where another reader holds the lane up: that
                one is to blame, and whoever watches it should be the first to say so.
            stopped: asked about ten times a second whether to end the wait.

        Returns:
            True when they are here, False if `stopped` said so.

        Raises:
            RingTimeout: the time is over; the text names the preprocessor.
            WriterLost: that process is dead.
            ValueError: the lane cannot hold so many samples until some are released.
        """
        self._check_open()
        if stop_position - self.released > self.certain:
            raise ValueError(
                f"lane {self._number} has {self.certain} samples ready at most: from {self.released} on, the first not "
                f"released, it cannot be awaited up to {stop_position}; release some first, or gather() in portions"
            )
        if stop_position <= self.available:
            return True
        start = time.monotonic()
        try:
            return self._wait_until(stop_position, start + timeout, timeout, stopped)
        finally:
            self.seconds_waited += time.monotonic() - start

    def take(self, positions: Any, out: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        """Copy the samples at some lane positions, which were waited for, into (inputs, targets).

        Inputs that are ragged are objects, (count,): an array of bytes each, (any,) uint8.
        """
        self._check_open()
        places = np.asarray(positions, np.int64)
        if places.size and not (self.released <= int(places.min()) and int(places.max()) < self.available):
            held = f"{self.released} to {self.available - 1}"
            raise ValueError(f"positions {places.min()} to {places.max()} are not all here; here are {held}")
        places = places % self.samples
        if self._ragged is not None:
            return self._ragged.take(places, self._layout.empty(places.size) if out is None else out)
        if out is None:
            return self.inputs[places], self.targets[places]
        np.take(self.inputs, places, axis=0, out=out[0], mode="wrap")
        take_targets(self._beside, places, out[1])
        return out

    def substitutes(self, positions: Any) -> Array:
        """Return the index of the sample that was taken in place of each at some lane positions, which were waited for.

        Returns:
            (count,) int64; `ITSELF` for each that could be made.
        """
        self._check_open()
        places, found = np.asarray(positions, np.int64) % self.samples, substitutes_in(self._beside)
        return np.full(places.shape, ITSELF) if found is None else found[places]

    def view(self, start: int, stop: int, step: int = 1) -> tuple[Array, Array]:
        """Return (inputs, targets) of the lane positions start, start + step ... below stop, which were waited for.

        They lie in shared memory, read only, until they are released. Those that go over the memory's end, and ragged
        ones, are copied, and targets that do not lie side by side.
        """
        place = self.span(start, stop, step)
        if place is not None:
            return self.inputs[place], self.targets[place].copy() if self._beside.dtype.names else self.targets[place]
        return self.take(np.arange(start, stop, step))

    def span(self, start: int, stop: int, step: int = 1) -> slice | None:
        """Return where such lane positions lie in `inputs` and `targets`.

        Returns:
            None where they go over the memory's end, or are ragged.
        """
        self._check_open()
        if not self.released <= start < stop <= self.available:
            raise ValueError(
                f"positions {start} to {stop - 1} are not all here: {self.released} to {self.available - 1}"
            )
        first, end = start % self.samples, (stop - 1) % self.samples + 1
        return slice(first, end, step) if first < end and self._ragged is None else None

    def gather(
        self,
        positions: Any,
        timeout: float,
        stopped: Callable[[], bool] | None = None,
        out: tuple[Array, Array] | None = None,
        substitutes: Array | None = None,
    ) -> tuple[Array, Array] | None:
        """Wait for, copy and release as it goes: works for any number of samples, also more than the lane holds.

        Args:
            positions: increasing lane positions; the slots wholly before the last one are released on the way.
            timeout: seconds that each slot may take.
            stopped: see `wait`.
            out: (inputs, targets) to copy into.
            substitutes: (count,) int64 to write into what `substitutes` gives; None: nobody asks.

        Returns:
            (inputs, targets), or None if `stopped` said so.
        """
        places = np.asarray(positions, np.int64)
        if np.any(np.diff(places) < 0):
            raise ValueError("gather takes increasing positions")
        if out is None:
            out = self._layout.empty(places.size)
        done = 0
        while done < places.size:
            self.release(int(places[done]))
            slot_end = (int(places[done]) // self._shape.slot_samples + 1) * self._shape.slot_samples
            if not self._wait_releasing(slot_end, timeout, stopped):
                return None
            upto = int(np.searchsorted(places, self.available))
            self.take(places[done:upto], (out[0][done:upto], out[1][done:upto]))
            if substitutes is not None:
                substitutes[done:upto] = self.substitutes(places[done:upto])
            done = upto
        return out

    def release(self, position: int) -> None:
        """Give back the slots that lie wholly before a lane position; positions that are not here are skipped later."""
        self._check_open()
        makers, writers, portions = self._makers, len(self._makers), self._portions
        until = min(position // self._shape.slot_samples, self._arrived // portions)
        if until <= self._released:
            return
        for portion in range(self._released * portions, until * portions):
            self._control.freed.post(self._reader, portion % writers)
        for portion in range(max(self._released * portions, until * portions - writers), until * portions):
            self._ring.bells.ring(makers[portion % writers])
        self._released = until
        self._control.cursors[self._reader] = self.released

    def leave(self) -> None:
        """Stop reading for good; the writers no longer wait for this reader. May be called twice."""
        if not self._open:
            return
        self._open, self._ragged = False, None
        del self.inputs, self.targets, self._beside
        for place, writer in enumerate(self._makers):
            self._control.left.post(self._reader, place)
            self._ring.bells.ring(writer)
        fence()
        self._control.active[self._reader] = 0
        self._control.detached.ring(0)

    @property
    def is_ragged(self) -> bool:
        """Whether samples are bytes of any number, which are copied as they come."""
        return self._layout.is_ragged

    def _hold_ragged(self, data: Array) -> None:
        """Read the lane's bytes as ragged samples."""
        makers, size = len(self._makers), self._shape.slot_samples
        self._ragged = lane = RaggedLane(self._layout, data, self._slots, size, makers)
        self.inputs, self._beside = np.empty(0, np.uint8), lane.targets
        self._held = min(self._slots, lane.certain * makers // self._portions) * size

    def _wait_releasing(self, stop: int, timeout: float, stopped: Callable[[], bool] | None) -> bool:
        """Wait for a position that may lie more than the lane's samples ahead, releasing what lies between."""
        while stop - self.released > self.certain:
            if not self.wait(self.released + self.certain, timeout, stopped):
                return False
            self.release(self.available)
        return self.wait(stop, timeout, stopped)

    def _wait_until(
        self, stop_position: int, deadline: float, timeout: float, stopped: Callable[[], bool] | None
    ) -> bool:
        told = False
        while self.available < stop_position:
            place = self._arrived % len(self._makers)
            if self._control.filled.try_wait(self._reader, place):
                self._arrived += 1
                continue
            if not told and self.on_waiting is not None:
                self.on_waiting()
            told, left = True, deadline - time.monotonic()
            if self._control.filled.wait(self._reader, place, seconds=min(left, _TICK) if left > 0 else _TICK):
                self._arrived += 1
                continue
            if stopped is not None and stopped():
                return False
            writer = self._makers[place]
            if self._ring.writer_is_dead(writer):
                self._take_last_token(place)
            elif left <= 0 and (left <= -_LONGER * timeout or not self.is_held_up):
                seconds = timeout * (1 + _LONGER) if self.is_held_up else timeout
                raise RingTimeout(f"{self._awaited(writer)} for {seconds:.3g} s{self._held_up()}")
        return True

    def _take_last_token(self, place: int) -> None:
        """Take what a dead writer published before its end, if its portion of this slot is among it."""
        if not self._control.filled.try_wait(self._reader, place):
            raise WriterLost(
                f"{self._awaited(self._makers[place])}, which is dead; start the run again, it goes on where it was"
            )
        self._arrived += 1

    def _awaited(self, writer: int) -> str:
        start = self.available
        return (
            f"reader {self._reader} of lane {self._number} waited for its positions {start} to "
            f"{start + self._shape.slot_samples - 1} (slot {self._arrived // self._portions}) from "
            f"{self._ring.writer_name(writer)}"
        )

    @property
    def is_held_up(self) -> bool:
        """Whether the writers wait for another reader, and this one for them."""
        return bool(self._held_up())

    def _held_up(self) -> str:
        """Name the rearmost reader if the writers wait for it."""
        active = np.flatnonzero(self._control.active)
        rearmost = int(active[np.argmin(self._control.cursors[active])]) if active.size else self._reader
        place = int(self._control.cursors[rearmost])
        if rearmost == self._reader or self.available - place < self._held:
            return ""
        return f"; that one waits for {self._ring.reader_name(rearmost)}, which has read up to position {place}"

    def _check_open(self) -> None:
        if not self._open:
            raise LaneError(f"reader {self._reader} has left lane {self._number}")


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
        """Its name in errors."""
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
    """A reader of this node as a holder of the slots of one writer, by its place among the makers."""

    def __init__(self, reader: int, place: int, ring: RingControl, control: LaneControl) -> None:
        self._pair = (reader, place)
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
        place = makers.index(writer)
        self._place, self._makers = (0, 1) if divided else (place, len(makers))
        self.samples, self.ahead = self._slots * shape.slot_samples, control.ahead * shape.slot_samples
        self._ragged: tuple[RaggedLane, ByteRegion] | None = None
        self._whole = not divided
        self._next: Slot | None = None
        if layout.is_ragged:
            lane = RaggedLane(layout, control.data, self._slots, shape.slot_samples, len(makers))
            self._ragged = lane, lane.region(place)
            self._inputs, self._targets = _NOTHING, lane.targets
        else:
            self._inputs, self._targets = control.blocks(layout, self.samples)
        self.holders: list[SlotHolder] = [_LocalReader(r, place, ring, control) for r in each(control.active)]
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
        """Holders that have not released this turn's slot yet; all where enough lies ready for the foremost."""
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


class Lane:
    """One lane of a node's ring, as one process sees it.

    It is opened again and again, with a larger generation each time: by one process `open`, by every reader
    named there `reader` and at its end `leave`, by every writer `writer` and at its end `close`.
    """

    def __init__(self, number: int, shape: RingShape, ring: RingControl, control: LaneControl) -> None:
        self.number = number
        self._shape, self._ring, self._control = shape, ring, control

    @property
    def generation(self) -> int:
        """The generation of the last opening, 0 before the first."""
        return int(self._control.words[0])

    @property
    def active_readers(self) -> tuple[int, ...]:
        """The readers that have not left."""
        return tuple(each(self._control.active))

    @property
    def is_idle(self) -> bool:
        """Whether all readers and writers of the last opening have gone, or are dead."""
        return not self._users()

    def cursor(self, reader: int) -> int:
        """The lane position up to which a reader has released, as far as is known here."""
        return int(self._control.cursors[reader])

    def dismiss(self, reader: int) -> None:
        """Let a reader leave that is known to be dead or never to attach; nothing happens if it has left."""
        if not self._control.active[reader]:
            return
        for place, writer in enumerate(self._control.makers):
            self._control.left.post(reader, place)
            self._ring.bells.ring(writer)
        fence()
        self._control.active[reader] = 0
        self._control.detached.ring(0)

    def dismiss_writer(self, writer: int) -> None:
        """Let nobody wait for the end of a writer that is lost; nothing happens if it has closed the lane."""
        self._control.writing[writer] = 0
        self._control.detached.ring(0)

    def open(
        self,
        layout: SampleLayout,
        readers: Sequence[int],
        generation: int,
        writers: Sequence[int] | None = None,
        samples: int | None = None,
        timeout: float = 60.0,
        makers: Sequence[int] = (),
        divided: bool = False,
        ahead: int | None = None,
    ) -> int:
        """Open the lane for another stream, by exactly one process of the node.

        It waits for the readers and writers of the last opening to go; those whose processes are dead are not
        waited for. The lane may then be attached to.

        Args:
            layout: the layout of the stream's samples.
            readers: the processes of this node that read it; may be none on a node that only makes samples.
            generation: its number, larger than at any opening before.
            writers: the writers that will use the lane on this node; by default all makers.
            samples: how many samples the lane may hold at most; by default as many as fit.
            timeout: seconds to wait for the lane to be idle.
            makers: the writers that fill the lane's slots, on any node; none named: all of the ring's.
            divided: each of them fills its samples of every slot; otherwise they take turns.
            ahead: how many samples may lie ready for the foremost reader; by default as many as the lane holds.

        Returns:
            how many samples the lane holds at once.

        Raises:
            LaneError: the generation is not new, a maker is none of the ring's writers, or the lane is too small for
                two slots of each.
            RingTimeout: somebody still uses the lane; the text says who.
        """
        if generation <= self.generation:
            raise LaneError(f"lane {self.number} had generation {self.generation}: {generation} is not a later one")
        if not all(0 <= reader < self._shape.readers for reader in readers):
            raise LaneError(f"readers {list(readers)}: this node's are 0 to {self._shape.readers - 1}")
        makers = makers or range(self._shape.writers)
        if len(set(makers)) < len(makers) or not all(0 <= maker < self._shape.writers for maker in makers):
            raise LaneError(f"makers {list(makers)}: each is one of the ring's writers, 0 to {self._shape.writers - 1}")
        if len(makers) > self._shape.most_makers:
            raise LaneError(f"{len(makers)} makers: {self._shape.most_makers} at most fill a lane of this ring")
        slots = self._slots(layout, samples, len(makers))
        writers = makers if writers is None else writers
        self._wait_until_idle(timeout)
        fence()
        self._control.reset()
        self._ring.forget_the_dead()
        self._control.active[list(readers)] = 1
        self._control.writing[list(writers)] = 1
        self._control.order[: len(makers)] = makers
        ready = slots if ahead is None else min(slots, self._whole_turns(ahead, len(makers)))
        self._control.words[1:] = slots, len(makers), len(makers) if divided else 1, ready
        fence()
        self._control.words[0] = generation
        self._admit(readers, writers)
        return slots * self._shape.slot_samples

    def reader(self, reader: int, layout: SampleLayout, generation: int, timeout: float = 60.0) -> LaneReader:
        """Attach to an opening as one of its readers, once; waits until the lane is opened.

        Raises:
            RingTimeout: the lane was not opened in time.
            LaneError: this opening does not name the reader, or the lane has gone on to a later one.
        """
        self._await_opening("reader", reader, generation, timeout)
        self._ring.register_reader(reader)
        return LaneReader(self.number, reader, layout, self._shape, self._ring, self._control)

    def writer(self, writer: int, layout: SampleLayout, generation: int, timeout: float = 60.0) -> LaneWriter:
        """Attach to an opening as the writer of its part of the slots, once; waits until it is opened.

        Raises:
            RingTimeout: the lane was not opened in time.
            LaneError: this opening does not name the writer, or the lane has gone on to a later one.
        """
        self._await_opening("writer", writer, generation, timeout)
        self._ring.register_writer(writer)
        return LaneWriter(self.number, writer, layout, self._shape, self._ring, self._control)

    def _slots(self, layout: SampleLayout, samples: int | None, makers: int) -> int:
        shape = self._shape
        size = self._control.data.nbytes
        slots = slots_that_fit(layout, size, shape.slot_samples, makers)
        if samples is not None:
            slots = min(slots, self._whole_turns(samples, makers))
        if slots < 2 * makers:
            sample = layout.input_bytes + layout.target_bytes
            raise LaneError(
                f"lane {self.number} has {size} bytes: too few for two slots of {shape.slot_samples} samples of "
                f"{sample} bytes for each of {makers} preprocessors; make lanes larger, or slots smaller"
            )
        return slots

    def _whole_turns(self, samples: int, makers: int) -> int:
        """Slots for so many samples, as many of each maker, two at least."""
        return max(-(-samples // (self._shape.slot_samples * makers)), 2) * makers

    def _wait_until_idle(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while users := self._users():
            left = deadline - time.monotonic()
            if left <= 0:
                text = f"lane {self.number} could not be opened anew for {timeout:g} s: it is still used by "
                raise RingTimeout(text + ", ".join(users))
            self._control.detached.wait(0, seconds=min(left, _TICK))

    def _users(self) -> list[str]:
        readers = [r for r in self.active_readers if not self._ring.reader_is_dead(r)]
        writers = [w for w in each(self._control.writing) if not self._ring.writer_is_dead(w)]
        return [*map(self._ring.reader_name, readers), *map(self._ring.writer_name, writers)]

    def _admit(self, readers: Sequence[int], writers: Sequence[int]) -> None:
        for reader in readers:
            self._control.opened_readers.post(reader)
        for writer in writers:
            self._control.opened_writers.post(writer)

    def _await_opening(self, what: Literal["reader", "writer"], who: int, generation: int, timeout: float) -> None:
        """Take tokens of openings until this generation's token came, and see that it names who takes it."""
        control = self._control
        opened = control.opened_readers if what == "reader" else control.opened_writers
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if opened.wait(who, seconds=max(left, 0.0)):
                found = self.generation
                fence()
                if found == generation and (control.active if what == "reader" else control.writing)[who]:
                    return
                if found == generation:
                    raise LaneError(f"{what} {who} is not among the {what}s of lane {self.number}, generation {found}")
                if found > generation:
                    raise LaneError(f"lane {self.number} has gone on to generation {found}, {generation} is over")
            elif left <= 0:
                raise RingTimeout(
                    f"lane {self.number} was not opened with generation {generation} for {timeout:g} s "
                    f"(it has {self.generation}): waited for the process that opens this node's lanes"
                )


class Ring:
    """The ring of one node; made by `create`, `forked` or `passed`.

    Attributes:
        shape: its dimensions.
        lanes: its lanes.
    """

    def __init__(self, memory: SharedMemory, shape: RingShape) -> None:
        self._memory = memory
        self.shape = shape
        self.control, controls = divide(memory.bytes, shape)
        self._lane_controls = controls
        self.lanes = tuple(Lane(number, shape, self.control, control) for number, control in enumerate(controls))

    @classmethod
    def create(
        cls, node_comm: MPI.Intracomm, lanes: int, lane_bytes: int, slot_samples: int, writers: int, makers: int = 0
    ) -> Ring:
        """Make the ring of a node. Collective over the processes that share the node's memory.

        Args:
            node_comm: communicator of the node's processes; a reader is named by its rank there.
            lanes: number of lanes.
            lane_bytes: bytes for the samples of one lane, see the function lane_bytes.
            slot_samples: samples of a slot.
            writers: preprocessors of the whole run.
            makers: most of them that fill one lane; 0: all.

        Raises:
            SharedMemoryError: too little is free; the same on every rank, before anything is allocated.
        """
        shape = RingShape(lanes, lane_bytes, slot_samples, node_comm.size, writers, makers)
        ring = cls(node_memory(node_comm, shape.bytes), shape)
        if node_comm.rank == 0:
            ring._initialise()
        node_comm.Barrier()
        ring.control.register_reader(node_comm.rank)
        return ring

    @classmethod
    def forked(cls, shape: RingShape) -> Ring:
        """Make a ring for this process and those that it forks afterwards; without MPI."""
        ring = cls(forked_memory(shape.bytes), shape)
        ring._initialise()
        return ring

    @classmethod
    def passed(cls, shape: RingShape, touched: int) -> tuple[Ring, int]:
        """Make a ring for processes that get the descriptor which is returned with it; without MPI.

        Raises:
            SharedMemoryError: the node has less memory than `touched` bytes available.
        """
        memory, descriptor = passed_memory(shape.bytes, touched)
        ring = cls(memory, shape)
        ring._initialise()
        return ring, descriptor

    @classmethod
    def received(cls, shape: RingShape, descriptor: int) -> Ring:
        """Return the ring behind a descriptor that was passed to this process."""
        return cls(received_memory(descriptor), shape)

    def free(self) -> None:
        """Give the memory back; collective if it was made collectively. Nothing of the ring may be used afterwards."""
        self._memory.free()

    def _initialise(self) -> None:
        self.control.initialise(self._memory.comparable_ids)
        for control in self._lane_controls:
            control.initialise()
