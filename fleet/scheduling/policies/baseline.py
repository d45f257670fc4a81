"""Every job for itself, on one device (the baseline of FLEET, MLSys'20, 6.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.state import State
from fleet.scheduling.queues.lottery import drawn


@dataclass(frozen=True)
class Baseline(Policy):
    """A device that becomes free takes a random waiting job at once. Nothing is shared.

    Random draws: seed path ("baseline", seed, job).
    """

    name: ClassVar[str] = "baseline"

    def plan(self, state: State) -> Plan:
        """The running jobs on their devices, and random waiting ones on the free devices."""
        following = zip(drawn(state.waiting, self.name, state.seed), state.free)
        return Plan(state.staying | {job.name: (device,) for job, device in following})
