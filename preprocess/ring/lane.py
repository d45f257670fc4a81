"""A lane: a bounded ring of slots that carries one stream to its readers on this node."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from preprocess.ring.control import LaneControl, RingControl, RingShape, each, slots_that_fit
from preprocess.ring.lane_reader import LaneReader
from preprocess.ring.lane_writer import LaneWriter
from preprocess.ring.semaphore import fence
from preprocess.samples.errors import LaneError, RingTimeout
from preprocess.samples.layout import SampleLayout

_TICK = 0.1


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
        """All readers and writers of the last opening have gone, or are dead."""
        return not self._users()

    def cursor(self, reader: int) -> int:
        """The lane position up to which a reader has released, as far as is known here."""
        return int(self._control.cursors[reader])

    def dismiss(self, reader: int) -> None:
        """Let a reader leave that is known to be dead or never to attach; nothing happens if it has left."""
        if not self._control.active[reader]:
            return
        for writer in self._control.makers:
            self._control.left.post(reader, writer)
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
