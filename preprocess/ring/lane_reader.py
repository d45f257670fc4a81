"""The reading end of a lane."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from preprocess.ring.control import LaneControl, RingControl, RingShape
from preprocess.ring.ragged_lane import RaggedLane
from preprocess.ring.semaphore import fence
from preprocess.samples.errors import LaneError, RingTimeout, WriterLost
from preprocess.samples.layout import ITSELF, Array, SampleLayout, plain_targets, substitutes_in, take_targets

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
            self._control.freed.post(self._reader, makers[portion % writers])
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
        for writer in self._makers:
            self._control.left.post(self._reader, writer)
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
            writer = self._makers[self._arrived % len(self._makers)]
            if self._control.filled.try_wait(self._reader, writer):
                self._arrived += 1
                continue
            if not told and self.on_waiting is not None:
                self.on_waiting()
            told, left = True, deadline - time.monotonic()
            if self._control.filled.wait(self._reader, writer, seconds=min(left, _TICK) if left > 0 else _TICK):
                self._arrived += 1
                continue
            if stopped is not None and stopped():
                return False
            if self._ring.writer_is_dead(writer):
                self._take_last_token(writer)
            elif left <= 0 and (left <= -_LONGER * timeout or not self.is_held_up):
                seconds = timeout * (1 + _LONGER) if self.is_held_up else timeout
                raise RingTimeout(f"{self._awaited(writer)} for {seconds:.3g} s{self._held_up()}")
        return True

    def _take_last_token(self, writer: int) -> None:
        """Take what a dead writer published before its end, if its portion of this slot is among it."""
        if not self._control.filled.try_wait(self._reader, writer):
            raise WriterLost(f"{self._awaited(writer)}, which is dead; start the run again, it goes on where it was")
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
