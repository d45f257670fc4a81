"""Stops a run in time for its checkpoints, before its allocation ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fleet.cluster.batch_systems import BatchAllocation
from fleet.coordination.live_state import LiveState
from fleet.journal import events
from fleet.journal.journal import Journal
from fleet.machine.launch.launched import StopFlag


@dataclass
class Walltime:
    """Whether to stop now: a signal came, or what is left is just enough for a step and the checkpoints, or for the
    measurement that would begin now.

    Args:
        stop: raised by signals; raised here once time is up.
        allocation: None outside of all.
        margin: seconds to be left at the end.
        asked: tells who wants the run to stop; "": nobody.
    """

    stop: StopFlag
    allocation: BatchAllocation | None
    margin: float
    ledger: LiveState
    journal: Journal
    clock: Callable[[], float] = time.time
    asked: Callable[[], str] = str
    #: Seconds kept for stopping: a run that stopped when it begins would begin for ever.
    _most: float = field(default=math.inf, init=False)

    def __call__(self, measuring: float = 0.0) -> bool:
        """Whether to stop now; `measuring`: seconds that a measurement takes, while rates are measured."""
        left = self.left
        if not self.stop.raised and (who := self.asked()):
            self.stop.raised = True
            self.journal.write(events.Warned(text=f"{who} wants it to stop; the same command goes on"))
        if not self.stop.raised and left is not None and left <= min(self.needed + measuring, self._most):
            self.stop.raised = True
            what = "no further measurement" if measuring else "stopping for checkpoints"
            text = f"the allocation ends in {left:.0f} s: {what}; the same command goes on"
            self.journal.write(events.Warned(text=text))
        return self.stop.raised

    @property
    def left(self) -> float | None:
        """Seconds until the allocation ends; None where it does not."""
        if self.allocation is None or self.allocation.end is None:
            return None
        return self.allocation.end - self.clock()

    @property
    def needed(self) -> float:
        """Seconds from a decision to stop until all checkpoints are written, as measured, and the margin; at most half
        of those that were left when the run began.
        """
        return min(self.ledger.seconds_to_stop() + self.margin, self._most)

    def announce(self) -> None:
        """Write down when the allocation ends, as far as it is known."""
        known = self.allocation
        if known is None:
            return
        left = self.left
        self.journal.write(events.Allocation(scheduler=known.scheduler, id=known.job, left=left))
        if left is not None:
            self._keep_half(left)
        if known.problem:
            text = f"{known.scheduler} does not say when the allocation ends ({known.problem}): only a signal stops it"
            self.journal.write(events.Warned(text=text))

    def _keep_half(self, left: float) -> None:
        """Train in at least half of the time left, however long it may take to stop."""
        wanted = self.needed
        self._most = max(0.0, left) / 2
        if wanted > self._most:
            text = (
                f"{left:.0f} s are left of the allocation, and stopping may take {wanted:.0f} s: the run stops "
                f"{self._most:.0f} s before the end; longer allocations, or a lower checkpoints.margin "
                f"(now {self.margin:g} s), leave more"
            )
            self.journal.write(events.Warned(text=text))
