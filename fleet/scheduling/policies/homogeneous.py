"""Rounds of random subsets on one device each (Pittman et al., SC'18, as in FLEET, MLSys'20, 6.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.lottery import drawn
from fleet.scheduling.state import Allocation, State


@dataclass(frozen=True)
class Homogeneous:
    """Train a random subset of the jobs, one device each; take the next subset once all of it are done.

    Random draws: seed path ("homogeneous", seed, job).
    """

    name: ClassVar[str] = "homogeneous"
    shares_streams: ClassVar[bool] = True

    def allocate(self, state: State) -> Allocation:
        """The jobs that run, or a new subset when none does."""
        if state.running:
            return state.staying
        return {job.name: (device,) for job, device in zip(drawn(state.jobs, self.name, state.seed), state.available)}
