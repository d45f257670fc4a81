"""The rounds of a simulation, as `run.json` has a run's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleet.scheduling.model.policy import Allocation, Plan


@dataclass(frozen=True)
class PlannedRound:
    """The time between two allocations, while at least one of the jobs trains.

    Attributes:
        allocation: job -> devices.
        start, end: seconds since the run began.
        bound, expected: from the plan with which it began, see `Plan.bound` and `Plan.end`; None: not computed.
        worth, worth_bound: likewise, as `Plan` has them.
        lent: likewise, trainers that prepare samples; None: none ever may.
    """

    allocation: Allocation
    start: float
    end: float = math.inf
    bound: float | None = None
    expected: float | None = None
    worth: float | None = None
    worth_bound: float | None = None
    lent: int | None = None

    @property
    def gap(self) -> float | None:
        """Return `Plan.gap`, with both ends counted from the run's begin."""
        return Plan(bound=self.bound, end=self.expected).gap


class RoundObserver:
    """Watches a simulation: a round begins where somebody starts, and ends where the next one does or nobody trains."""

    def __init__(self) -> None:
        self.dropped: dict[str, str] = {}
        """Job -> why the policy dropped it."""
        self._rounds: list[PlannedRound] = []

    def __call__(self, now: float, plan: Plan, running: Allocation) -> None:
        """A plan was carried out, and since then these jobs run."""
        self.dropped |= plan.dropped
        before = self._rounds[-1].allocation if self._rounds and self._rounds[-1].end == math.inf else {}
        starting = any(before.get(job) != devices for job, devices in running.items())
        if before and (starting or not running):
            self._rounds[-1] = replace(self._rounds[-1], end=now)
        if starting:
            known = plan.bound, plan.end, plan.worth, plan.worth_bound, plan.lent
            self._rounds.append(PlannedRound(dict(running), now, math.inf, *known))

    def until(self, ends: Mapping[str, float]) -> tuple[PlannedRound, ...]:
        """The rounds in order, if each job was done when `ends` says, NaN: never; none that ended where it began."""
        ended = (replace(one, end=min(one.end, _last(one.allocation, ends))) for one in self._rounds)
        return tuple(one for one in ended if one.end > one.start)


def _last(jobs: Allocation, ends: Mapping[str, float]) -> float:
    return max(math.inf if math.isnan(ends[job]) else ends[job] for job in jobs)
