"""Rehearsal: everything real but the device's compute, which is a wait taken from the rate curve."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from trainers import Batch, Training, VirtualWorker

PER_EPOCH = 0.15  # a rehearsed loss falls like a loss does, so that the report has something to draw
CATCH_UP = 0.25  # of a turn: so much of what sleeps and peers were late is made up for in the next turn


class RehearsedCompute:
    """Takes the place of forward and backward: waits as long as the curve says a step takes, and leaves no gradients.

    A group of m devices takes N B / r(m) seconds a step for N virtual workers with batches of B, as many turns as its
    slowest member has; a member with less to do is done earlier and waits for its peers. What the real parts of the
    step cost here (reduction, optimizer, messages) is inside r(m) already, so it is taken off the wait; so is, within
    `CATCH_UP`, what a sleep was too long, here or on a peer: it would add up over the steps.

    Args:
        turn_seconds: in a real run the turn of one virtual worker takes so long on this member's device.
        time_scale: seconds rehearsed for one second of a real run.
    """

    def __init__(self, turn_seconds: float, time_scale: float) -> None:
        self._turn_seconds = turn_seconds * time_scale
        self._waited: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
        self._last: _Turn | None = None

    def watch(self, waited: Callable[[], tuple[float, float]]) -> None:
        """Take `waited()`, seconds that this member waited for data and for peers so far, as no cost of its own."""
        self._waited = waited

    def gradients(self, trainer: Training, worker: VirtualWorker, batch: Batch) -> float:
        """Wait for one turn of one worker; return a loss that falls with the epochs."""
        now = time.perf_counter()
        late = 0.0 if self._last is None else self._late(self._last, now)
        time.sleep(max(0.0, self._turn_seconds - late))
        self._last = _Turn(now - late + self._turn_seconds, time.perf_counter(), *self._waited())
        return math.exp(-PER_EPOCH * trainer.epoch)

    def _late(self, last: _Turn, now: float) -> float:
        """Seconds of the next turn that are over already: own work, and a part of what could not be helped."""
        data, peers = (after - before for after, before in zip(self._waited(), (last.data, last.peers)))
        work = max(0.0, now - last.ended - data - peers)
        behind = max(0.0, now - last.due - data)
        return min(behind, work + CATCH_UP * self._turn_seconds)


class _Turn(NamedTuple):
    """A turn that is over: when it should have ended, when it did, and seconds waited until then."""

    due: float
    ended: float
    data: float
    peers: float
