"""Rounds of random subsets on one device each (Pittman et al., SC'18, as in FLEET, MLSys'20, 6.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.state import State
from fleet.scheduling.queues.lottery import drawn


@dataclass(frozen=True)
class Homogeneous(Policy):
    """Train a random subset of the jobs, one device each; take the next subset once all of it are done.

    Random draws: seed path ("homogeneous", seed, job).
    """

    name: ClassVar[str] = "homogeneous"
    shares_streams: ClassVar[bool] = True

    def plan(self, state: State) -> Plan:
        """The jobs that run, or a new subset when none does."""
        if state.running:
            return Plan(state.staying)
        subset = zip(drawn(state.jobs, self.name, state.seed), state.available)
        return Plan({job.name: (device,) for job, device in subset})
