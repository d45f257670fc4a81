"""A policy whose jobs are awaited together: who would end last does not wait for those that end sooner."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.state import Allocation, State
from fleet.scheduling.policies.wrapped_policy import WrappedPolicy

_ROUNDING = 1e-6
_SOON = 0.05  # of the time until all have ended: devices that are free by then are waited for


class LeastLaxity(WrappedPolicy):
    """Lets a job have the devices of one that can wait, once it cannot wait any longer itself.

    Jobs that take as many devices each all end by T, and no sooner,

        T = max(max_i r_i, sum_i r_i / M),

    where r_i is how long job i has yet to train, and M of them train at a time, if jobs are stopped in time for others
    (McNaughton, 1959: Scheduling with Deadlines and Loss Functions). The laxity of job i is T - r_i: so long can it
    wait. The wrapped policy says who trains; when the laxity of a job that waits has run out, it takes the place of
    the one with the most. A job in its last epoch waits for its turn, and keeps its devices, which are free soon.

    Others may wait for its end, and then train for up to f_i: `JobState.further` of the longest epochs that are known.
    Nobody is stopped for that. But of those that are to begin the first is whose r_i + f_i is most, once
    max(T, max_j (r_j + f_j)) - (r_i + f_i) has run out, as on the critical path of a project. And nobody is stopped for
    whom others wait.

    Jobs with a deadline, a service level or a guarantee are left alone, as are those that train ahead of need, and all
    where there are several kinds of device.

    Args:
        policy: says who trains.
    """

    def plan(self, state: State) -> Plan:
        """As `Policy.plan`."""
        plan = self._policy.plan(state)
        given = plan.whole_of(state.staying)
        waiting = [job for job in state.by_name.values() if job.name not in given and job.name not in plan.dropped]
        if state.cluster.kinds or not given:
            return plan
        for size in sorted({job.gang for job in waiting}):
            line = _Line.of(state, given, [job for job in waiting if job.gang == size], size)
            plan = line.let_go_first(plan, state)
        return plan


@dataclass(frozen=True)
class _Line:
    """Jobs that take as many devices each.

    Attributes:
        devices: those of the jobs that train.
        waiting: names of the others, on whom most may wait first.
        seconds: that each has yet to train, r_i.
        chains: with what may follow on it, r_i + f_i.
        epochs: seconds of an epoch of each.
        moving: most seconds that it takes one of them to begin elsewhere.
    """

    devices: Allocation
    waiting: Sequence[str]
    seconds: Mapping[str, float]
    chains: Mapping[str, float]
    epochs: Mapping[str, float]
    moving: float

    @classmethod
    def of(cls, state: State, given: Allocation, waiting: Iterable[JobState], size: int) -> _Line:
        """The jobs of this size, of those that are to train and those that are not."""
        train = [state.by_name[name] for name, devices in given.items() if len(devices) == size]
        train = [job for job in train if job.gang == size and _may_move(job)]
        wait = [job for job in waiting if _may_move(job) and job.minimum_devices <= size]
        jobs = [*train, *wait]
        seconds = {job.name: _seconds(job, size, state.time) for job in jobs}
        epochs = {job.name: job.epoch / float(job.rate(size)) for job in jobs}
        longest = max(epochs.values(), default=0.0)
        chains = {job.name: seconds[job.name] + job.further * longest for job in jobs}
        return cls(
            {job.name: given[job.name] for job in train},
            sorted((job.name for job in wait), key=lambda name: -chains[name]),
            seconds,
            chains,
            epochs,
            max((job.restart for job in jobs), default=0.0),
        )

    def let_go_first(self, plan: Plan, state: State) -> Plan:
        """The plan in which those train that cannot wait; it is made anew when the next of them cannot."""
        if not self.devices or not self.waiting or math.inf in self.seconds.values():
            return plan
        end = max(*self.seconds.values(), sum(self.seconds.values()) / len(self.devices))
        last, least = max(end, *self.chains.values()), max(self.moving, _ROUNDING * end)
        left, waiting = set(self.devices), set(self.waiting)
        for name in self.waiting:
            cannot_wait = end - self.seconds[name] <= least
            if not cannot_wait and last - self.chains[name] > least:
                continue
            other = self._who_can_wait(name, left, state.running, max(self.moving, _SOON * end), cannot_wait)
            if other is None:
                break
            plan = self._instead(plan, state, name, other)
            left, waiting = left - {other}, waiting - {name} | {other}
        laxity = end - max(self.seconds[name] for name in waiting)
        return replace(plan, wake=min(plan.wake, state.time + laxity)) if laxity > least else plan

    def _who_can_wait(
        self, name: str, left: Set[str], running: Container[str], soon: float, may_stop: bool
    ) -> str | None:
        """Whose place a job should take: of one that has not begun, or else of one that has; None: it should wait.

        Args:
            may_stop: whether one that has begun may be stopped.
        """
        ends, chain = self.seconds[name], self.chains[name]
        shortest = sorted(left, key=lambda other: (self.chains[other], other))
        if chain <= self.epochs[name] * (1 + _ROUNDING):
            return None
        for other in shortest:
            if other not in running and self.chains[other] < chain:
                return other
        if not may_stop or ends <= self.epochs[name] * (1 + _ROUNDING):
            return None
        for other in shortest:
            if other in running:
                goes_on = max(soon, self.epochs[other]) < self.seconds[other]
                goes_on &= self.chains[other] == self.seconds[other] < ends - self.moving
                return other if goes_on else None
        return None

    def _instead(self, plan: Plan, state: State, name: str, other: str) -> Plan:
        """The plan in which one job has the place of another. What the policy remembers is of its own plan."""
        allocation = {job: devices for job, devices in plan.allocation.items() if job != other}
        is_stopped = plan.others_go_on and other in state.running
        return replace(
            plan,
            allocation={**allocation, name: self.devices[other]},
            stopped=(*plan.stopped, other) if is_stopped else plan.stopped,
            lanes={job: lane for job, lane in plan.lanes.items() if job != other},
            memo=None,
        )


def _may_move(job: JobState) -> bool:
    """Whether nothing is promised to a job."""
    return not (job.ahead or job.guaranteed or job.service_level is not None or job.deadline < math.inf)


def _seconds(job: JobState, devices: int, now: float) -> float:
    """How long a job has yet to train on so many devices; infinite: nobody knows."""
    return max(0.0, job.remaining_at(now)) / (job.pace if job.pace else float(job.rate(devices)))
