"""Earliest deadline first with admission control (ElasticFlow, ASPLOS'23, 6.4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.state import State
from fleet.scheduling.placing.resizing import resized
from fleet.scheduling.policies.checks import check_flag, check_seconds
from fleet.scheduling.policies.usual_policy import UsualPolicy
from fleet.scheduling.queues.earliest_deadline import Projection, ScaleOut, by_deadline, now_running


@dataclass(frozen=True)
class EdfAdmission(UsualPolicy):
    """Like `edf`, but admit a job only if it and all admitted jobs would be done in time.

    The plans of earliest deadline first for the admitted jobs and the newcomer are projected to the end. Jobs without
    a deadline, and jobs whose soft deadline was not promised, have the devices that are left over.

    Args:
        stop_at_peak: whether a job takes no more devices than make it faster, see `ScaleOut`.
        interval: seconds; what happens waits for the next multiple of it. 0: nothing waits.
    """

    name: ClassVar[str] = "edf-admission"

    stop_at_peak: bool = False
    interval: float = 0.0

    def __post_init__(self) -> None:
        check_flag("stop_at_peak", self.stop_at_peak)
        check_seconds("interval", self.interval)

    def plan(self, state: State) -> Plan:
        """Admit or refuse who is new, in the order of arrival; then the nearest deadlines first."""
        promised = [job for job in state.jobs if job.admitted]
        others = [job for job in state.jobs if not job.admitted and not state.is_new(job)]
        admitted: list[str] = []
        dropped: dict[str, str] = {}
        refused: dict[str, None] = {}
        for job in sorted(state.jobs, key=lambda job: (job.arrival, job.name)):
            if state.is_new(job):
                if self._fits([*promised, job], state):
                    promised.append(job)
                    admitted.append(job.name)
                elif job.soft or job.remaining == math.inf:
                    others.append(job)
                    refused[job.name] = None
                else:
                    dropped[job.name] = "its deadline, or one that was promised already, could not be met"
        devices = state.capacity
        line = sorted(promised, key=by_deadline) + sorted(others, key=lambda job: (job.arrival, job.name))
        counts = now_running(line, devices, ScaleOut(self.stop_at_peak))
        return Plan(resized(counts, state), admitted=tuple(admitted), dropped=dropped, promises=refused)

    def _fits(self, jobs: list[JobState], state: State) -> bool:
        devices = state.capacity
        projection = Projection(state.time, devices, ScaleOut(self.stop_at_peak), self.interval)
        return projection.in_time(sorted(jobs, key=by_deadline))
