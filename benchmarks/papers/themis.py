"""Themis: finish-time fairness by leases (Mahajan et al., NSDI'20)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_period, last_multiple
from fleet.scheduling.model.remaining_epochs import remaining_samples
from fleet.scheduling.placing.placement import staying
from fleet.scheduling.policies.fifo import too_large


@dataclass(frozen=True)
class Themis(Policy):
    """Devices are lent for a lease to the jobs that are treated worst.

    Job j's finish-time fairness is rho = T_sh / T_id (3.1): the time from its arrival to its end as things are, over
    the same if it had 1 / N of the cluster, where N jobs are unfinished, for itself. With W samples in all, w of them
    left, a gang of g of the M devices and the rate r(g):

        T_sh = now - arrival + w / r(g),    T_id = W / r(g) * max(1, N g / M).

    All leases end at the same time. Then the jobs get their gangs in the order of rho, the largest first; one that does
    not fit is passed over. In between free devices are lent in the same order, and nobody is stopped. That is the
    paper's partial auction (4.2) with bids that are true and visible to all; its hidden payments only make bids so.
    A job that asks for more than the cluster has is dropped.

    Args:
        lease: seconds; the paper has 20 minutes.

    Raises:
        ValueError: a lease that is not above 0.
    """

    name: ClassVar[str] = "themis"
    keeps_minimum: ClassVar[bool] = True

    lease: float = 1200.0

    def __post_init__(self) -> None:
        check_period("lease", self.lease)

    def plan(self, state: State) -> Plan:
        """The gangs that are lent from now on, and when their leases end."""
        dropped = too_large(state.jobs, state.cluster)
        asking = [job for job in state.jobs if job.name not in dropped]
        ended = last_multiple(self.lease, state.time)
        line = _worst_first(asking, state)
        due = state.time - ended <= 1e-6 * self.lease
        placed = _lent(line, state, due)
        wake = ended + self.lease if len(placed) < len(asking) else math.inf
        return Plan(placed, dropped=dropped, wake=wake)


def _worst_first(jobs: list[JobState], state: State) -> list[JobState]:
    if not jobs:
        return []
    samples = remaining_samples(jobs, state.time, None).tolist()
    rho = {job.name: _rho(job, left, len(jobs), state) for job, left in zip(jobs, samples)}
    return sorted(jobs, key=lambda job: (-rho[job.name], job.arrival, job.name))


def _rho(job: JobState, left: float, jobs: int, state: State) -> float:
    """rho, if it has its gang from now on."""
    rate = job.rate(job.gang)
    whole = max(left + job.trained_at(state.time), left)
    shared = state.time - job.arrival + left / rate
    return shared / (whole / rate * max(1.0, jobs * job.gang / state.cluster.size))


def _lent(line: list[JobState], state: State, ended: bool) -> dict[str, tuple[int, ...]]:
    """Devices by job. Who has them keeps them while the leases last, and where they are if he is among the next.

    Who has lost one of them, which a live run shows until the job's group has ended, asks like those who wait.
    """
    placed, free = staying({job.name: job.gang for job in line}, state)
    ended = ended and len(placed) < len(line)
    budget = len(state.available)
    chosen: set[str] = set()
    for job in sorted(line, key=lambda job: job.name not in placed) if not ended else line:
        if job.gang <= budget:
            chosen.add(job.name)
            budget -= job.gang
    for name in [name for name in placed if name not in chosen]:
        free.give(placed.pop(name))
    for job in line:
        if job.name in chosen and job.name not in placed:
            devices = free.take(job.gang)
            assert devices is not None, "the budget is what is free"
            placed[job.name] = devices
    return placed
