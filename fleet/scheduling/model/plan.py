"""What a policy answers."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fleet.scheduling.model.service_level import ServiceWindow
from fleet.scheduling.model.state import Allocation


@dataclass(frozen=True)
class Plan:
    """Who trains where from now on.

    Attributes:
        allocation: job -> devices. A running job with the devices that it has goes on, with others it moves.
        others_go_on: jobs that are not in `allocation` go on where they run; otherwise they stop.
        stopped: jobs that stop although others go on.
        lanes: job -> number of its lane, for jobs of `allocation` that begin anew, also on devices that they have: of
            the jobs of a stream that begin now, those with the same number read together. 0, where it is not said.
        batches: job -> samples in a step, for jobs whose number changes.
        admitted: jobs whose deadline is promised from now on.
        dropped: job -> why it will never run; it leaves the queue.
        undecided: job -> why nothing has been decided on its deadline yet.
        late: of the jobs whose deadline was promised, all that cannot meet it any more, and when each can be done at
            the earliest, counted as `wake`.
        windows: what became of promised service levels since the last plan.
        promoted: jobs whose service until now no longer counts against them.
        wake: seconds since the run began at which the policy wants to be asked even if nothing has happened.
        bound: seconds below which no plan can bring the end of all jobs, counted as `wake`; None: not computed.
        end: when this plan expects all jobs to be done, counted so; None: not computed.
        worth: what the plan is worth by the policy's own measure; None: it has none.
        worth_bound: what no plan could be worth more than now, by the same measure; None: not computed.
        memo: what the policy wants to see again in the next state, once, so that it may be changed in place. It saves
            work alone: with or without it the answer is the same. Only `gavel` and `goodput` learn by it, and begin
            anew where it is lost.
        lent: so many trainers without a job may prepare samples, and r(m) was cut off at what comes out with them;
            None: nobody has chosen.
        promises: job -> its promise from now on. Unlike the memo it is never lost, and an answer may depend
            on it: the driver keeps it, as it is, until it is replaced or the job has left.
    """

    allocation: Allocation = field(default_factory=dict)
    others_go_on: bool = False
    stopped: tuple[str, ...] = ()
    lanes: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    admitted: tuple[str, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    undecided: Mapping[str, str] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)
    windows: tuple[ServiceWindow, ...] = ()
    promoted: tuple[str, ...] = ()
    wake: float = math.inf
    bound: float | None = None
    end: float | None = None
    worth: float | None = None
    worth_bound: float | None = None
    memo: Any = None
    promises: Mapping[str, Any] = field(default_factory=dict)
    lent: int | None = None

    def whole_of(self, running: Allocation) -> dict[str, tuple[int, ...]]:
        """Everybody who trains from now on, and where, if `running` is who trains now."""
        if not self.others_go_on:
            return dict(self.allocation)
        going_on = {job: devices for job, devices in running.items() if job not in self.stopped}
        return {**going_on, **self.allocation}

    def without(self, jobs: Container[str]) -> Plan:
        """The plan for all others, where these jobs have ended meanwhile."""
        maps = ("allocation", "lanes", "batches", "dropped", "undecided", "late", "promises")
        fields: dict[str, Any] = {
            name: {job: value for job, value in getattr(self, name).items() if job not in jobs} for name in maps
        }
        for name in ("stopped", "admitted", "promoted"):
            fields[name] = tuple(job for job in getattr(self, name) if job not in jobs)
        return replace(self, **fields)

    @property
    def gap(self) -> float | None:
        """How far the plan can be from the best, as a share of the bound; None: no bound was computed."""
        return None if self.bound is None or self.end is None or self.bound <= 0 else self.end / self.bound - 1
