"""Tells a tracker of a run as long as it goes on, and ends with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fleet.models.errors import HarvestError
from fleet.models.tracked.facts import TrackedEnsemble
from fleet.models.tracked.mlflow_store import StoreError, Told
from fleet.models.tracked.reading import OVER

_LOOKS_APART = 4.0  # times what a look takes lie between two, at least: a long journal takes long to read


class TrackerStore(Protocol):
    """What is told of a run."""

    def tell(self, run: TrackedEnsemble) -> Told: ...


@dataclass(frozen=True)
class Following:
    """How a run is followed.

    Attributes:
        every: seconds between two looks.
        wait: seconds that the run may need to begin, that its writer may be silent, and that the store may fail.
        say: is told on what it waits, once each time.
        clock, sleep: seconds.
    """

    every: float
    wait: float
    say: Callable[[str], object]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep

    def follow(self, read: Callable[[], TrackedEnsemble], store: TrackerStore) -> tuple[TrackedEnsemble, Told]:
        """Tell `store` what `read` gives until the run is over; return its last state, and how much was new.

        Raises:
            HarvestError: the run has not begun, its writer was silent, or the store has failed, for `wait` seconds.
        """
        told, since, doubted = Told(), self.clock(), False
        while True:
            begin = self.clock()
            run, new, doubt = _look(read, store)
            told += new
            if run is not None and run.state in OVER:
                return run, told
            if not doubt:
                since = self.clock()
            elif not doubted:
                self.say(f"{doubt}; waiting {self.wait:g} s at most")
            doubted = bool(doubt)
            if doubt and self.clock() - since >= self.wait:
                raise HarvestError(f"{doubt}; it has been so for {self.wait:g} s")
            self.sleep(max(self.every, _LOOKS_APART * (self.clock() - begin)))


def _look(read: Callable[[], TrackedEnsemble], store: TrackerStore) -> tuple[TrackedEnsemble | None, Told, str]:
    """What was read and is told now, how much of it was new, and what may pass or be the end."""
    try:
        run = read()
    except HarvestError as error:  # it has not begun
        return None, Told(), str(error)
    try:
        told = store.tell(run)
    except StoreError as error:
        return None, Told(), str(error)
    return run, told, "the run's process says nothing any more" if run.state == "silent" else ""
