"""Stops a run in time for its checkpoints, before its allocation ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from fleet.allocation import Allocation
from fleet.journal import Journal
from fleet.ledger import Ledger
from fleet.signals import StopFlag


@dataclass
class Walltime:
    """Whether to stop now: a signal came, or what is left is just enough for a step and the checkpoints.

    Args:
        stop: raised by signals; raised here once time is up.
        allocation: None outside of all.
        margin: seconds to be left at the end.
    """

    stop: StopFlag
    allocation: Allocation | None
    margin: float
    ledger: Ledger
    journal: Journal
    clock: Callable[[], float] = time.time

    def __call__(self) -> bool:
        left = self.left
        if not self.stop.raised and left is not None and left <= self.needed:
            self.stop.raised = True
            text = f"the allocation ends in {left:.0f} s: stopping for checkpoints; the same command goes on"
            self.journal.write("warning", text=text, job=None)
        return self.stop.raised

    @property
    def left(self) -> float | None:
        """Seconds until the allocation ends; None where it does not."""
        if self.allocation is None or self.allocation.end is None:
            return None
        return self.allocation.end - self.clock()

    @property
    def needed(self) -> float:
        """Seconds from a decision to stop until all checkpoints are written, as measured, and the margin."""
        return self.ledger.seconds_to_stop() + self.margin

    def announce(self) -> None:
        """Write down what is known of the end."""
        known = self.allocation
        if known is None:
            return
        self.journal.write("allocation", scheduler=known.scheduler, id=known.job, left=self.left)
        if known.problem:
            text = f"{known.scheduler} does not say when the allocation ends ({known.problem}): only a signal stops it"
            self.journal.write("warning", text=text, job=None)
