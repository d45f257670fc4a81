"""A loader's end: one connection to the service, and the lane that it reads now."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from preprocess.ring.lane_reader import LaneReader
from preprocess.ring.ring import Ring
from preprocess.samples.corrupt import SkippedSample
from preprocess.samples.errors import RingTimeout, ServiceError, WriterLost
from preprocess.samples.layout import Array
from preprocess.samples.part import Indices
from preprocess.sharing.messages import (
    Assigned,
    Channel,
    ChannelClosed,
    Failed,
    Hello,
    LaneLeft,
    LoaderMessage,
    Read,
    Refused,
    Rested,
    Skipped,
    Welcome,
)
from preprocess.sharing.own_pace import OwnPace
from preprocess.sharing.own_samples import Places

#: How often a loader starts again after the service has died, for one batch.
_MOST_RETURNS = 3

#: How long a loader waits for the service's last word on an epoch; without it, only news of skipped samples are late.
_REST_SECONDS = 5.0


class SharedStream:
    """One epoch after the other, read from lanes that the service gives and changes.

    Args:
        connect: finds the service, or starts it.
        hello: how this loader introduces itself.
        timeout: seconds that a wait for samples, or for the service, may take.
        on_skip: called with each sample that the service skipped while this loader was there.

    Attributes:
        layout: the layout of the samples.
        length, held_out: samples of the data set.
        blocks: the order by blocks of its training samples; None: they are shuffled with all others.
        readers: how many loaders read the present lane.
        seconds_waited: time spent waiting for samples and for other loaders.
    """

    def __init__(
        self, connect: Callable[[], Channel], hello: Hello, timeout: float, on_skip: Callable[[SkippedSample], None]
    ) -> None:
        self._connect, self._hello, self._timeout, self._on_skip = connect, hello, timeout, on_skip
        self._reader: LaneReader | None = None
        self._read: Read | None = None
        self._first_place = 0
        self._place = 0  # before it, all was released
        self._failure = ""
        self._returns = 0
        self._pace = OwnPace()
        self.readers = 0
        self.seconds_waited = 0.0
        self._join()

    def read(self, request: Read) -> None:
        """Ask for an epoch, or for another place of it."""
        self._leave_lane()
        self._pace.ends(self._place, time.monotonic(), self.seconds_waited)
        self._read, self._place, self._failure = replace(request, rate=self._pace.rate), request.place, ""
        self._pace.begins(self._place, time.monotonic(), self.seconds_waited)
        self._send(self._read)

    def rest(self) -> None:
        """Read no more for now, and hear the last words on the samples that were read; nothing after `close`."""
        if self._channel.is_closed:
            return
        self._leave_lane()
        self._pace.ends(self._place, time.monotonic(), self.seconds_waited)
        self._read = None
        self._send(LaneLeft())
        deadline = time.monotonic() + _REST_SECONDS
        with suppress(ChannelClosed):
            while not isinstance(message := self._channel.receive(self._left(deadline))[0], Rested | None):
                self._note(message)

    def check(self) -> None:
        """Raise ServiceError if the service has said that something failed."""
        if self._failure:
            raise ServiceError(self._failure)

    def close(self) -> None:
        """Leave the service."""
        self._leave_lane()
        self._channel.close()

    def samples(self, places: Places, taken: Array | None = None) -> tuple[Array, Array]:
        """Wait for some places of the epoch and return (inputs, targets), (count, ...) each.

        Args:
            places: ascending, at least one; others' samples may lie between them.
            taken: (count,) int64 to write into what was taken in place of each, see `LaneReader.substitutes`; then all
                are copies. None: nobody asks.

        They are views that lie in shared memory where that is possible, valid until `release`, and not to be written.

        Raises:
            RingTimeout: they did not come in time.
            ServiceError: the service says why they will not come.
        """
        begin = time.monotonic()
        try:
            found = self._view(places) if isinstance(places, range) and taken is None else None
            return self._copied(np.asarray(places), taken) if found is None else found
        finally:
            self.seconds_waited += time.monotonic() - begin

    def release(self, place: int) -> None:
        """Give back what lies before a place of the epoch."""
        self._place = place
        if self._reader is not None:
            self._reader.release(place - self._first_place)

    def _view(self, places: range) -> tuple[Array, Array] | None:
        """Return what lies side by side, or None if the lane never holds it all at once."""
        deadline = time.monotonic() + self._timeout
        while True:
            reader = self._present_reader(deadline)
            first, last = places.start - self._first_place, places.stop - self._first_place
            if last - first > reader.samples - self._slot_samples:
                return None
            while last - reader.released > reader.samples:  # others of the lane are further behind
                if not self._await(reader, min(first, reader.released + reader.samples), deadline):
                    break
                reader.release(first)
            else:
                if self._await(reader, last, deadline):
                    return reader.view(first, last)

    def _copied(self, places: Indices, taken: Array | None) -> tuple[Array, Array]:
        """Copy samples as they come, and let pass what lies between them; each wait has its own time-out."""
        inputs, targets = self.layout.empty(places.size)
        done = 0
        while done < places.size:
            deadline = time.monotonic() + self._timeout
            reader = self._present_reader(deadline)
            self._place = int(places[done])  # from here on, where the service gives another lane
            position = self._place - self._first_place
            reader.release(position)
            if reader.available <= position:
                self._await(reader, reader.available + 1, deadline)
                continue
            here = done + int(np.searchsorted(places[done:], self._first_place + reader.available))
            reader.take(places[done:here] - self._first_place, (inputs[done:here], targets[done:here]))
            if taken is not None:
                taken[done:here] = reader.substitutes(places[done:here] - self._first_place)
            done = here
        return inputs, targets

    def _present_reader(self, deadline: float) -> LaneReader:
        """Do what the service has said, and return this loader's end of its lane as soon as it has one."""
        while True:
            self._hear()
            if self._reader is not None:
                return self._reader
            self._await_news(deadline, "the service to give a lane (it may wait for other loaders)")

    def _await(self, reader: LaneReader, position: int, deadline: float) -> bool:
        """Wait for what lies before a lane position; False if the service has to be heard first."""
        try:
            return reader.wait(position, self._left(deadline), self._channel.is_readable)
        except WriterLost:
            self._await_news(deadline, "the service to replace a preprocessor that died")
            return False

    def _hear(self) -> None:
        """Do what the service has said."""
        try:
            while (message := self._channel.receive(0.0)[0]) is not None:
                self._note(message)
        except ChannelClosed:
            self._return()
        self.check()

    def _note(self, message: LoaderMessage) -> None:
        if isinstance(message, Failed):
            self._failure = message.reason
        elif isinstance(message, Skipped):
            self._on_skip(message.sample)
        elif isinstance(message, Assigned) and self._read is not None:
            self._move(message)

    def _move(self, to: Assigned) -> None:
        """Go on in another lane, at the place where this loader is."""
        self._leave_lane()
        self._reader = self._ring.lanes[to.lane].reader(self._number, self.layout, to.generation, self._timeout)
        self._first_place, self.readers = to.first_place, to.readers
        self._reader.release(self._place - to.first_place)

    def _await_news(self, deadline: float, what: str) -> None:
        if not self._channel.is_readable(self._left(deadline)):
            raise RingTimeout(f"this loader waited {self._timeout:g} s for {what}")

    def _return(self) -> None:
        """Start again where this loader is, after the service has died."""
        self._leave_lane()
        self._channel.close()
        self._returns += 1
        if self._returns > _MOST_RETURNS:
            raise ServiceError(f"the service of this node's loaders died {self._returns} times")
        self._join()
        if self._read is not None:
            read = self._read
            self._send(replace(read, place=self._place))

    def _join(self) -> None:
        self._channel = self._connect()
        self._send(self._hello)
        answer, descriptors = self._channel.receive(self._timeout, descriptors=1)
        if isinstance(answer, Refused):
            raise ServiceError(answer.reason)
        if not isinstance(answer, Welcome):
            raise RingTimeout(f"the service of this node's loaders did not answer for {self._timeout:g} s")
        (descriptor,) = descriptors
        self._ring = Ring.received(answer.shape, descriptor)
        os.close(descriptor)
        self._number, self._slot_samples = answer.reader, answer.shape.slot_samples
        self.layout, self.length, self.held_out = answer.layout, answer.length, answer.held_out
        self.blocks = answer.blocks

    def _leave_lane(self) -> None:
        if self._reader is not None:
            self._reader.leave()
            self._reader = None

    def _send(self, message: Hello | Read | LaneLeft) -> None:
        try:
            self._channel.send(message)
        except ChannelClosed:
            return  # the next one who waits learns it, and returns

    def _left(self, deadline: float) -> float:
        return max(deadline - time.monotonic(), 0.0)
