"""Pollux: devices and batch sizes by goodput (Qiao et al., OSDI'21)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_period, check_seconds
from fleet.scheduling.placing.placement import placed_or_staying


class Tuned(NamedTuple):
    """The batch size of the whole job with the highest goodput, and that goodput, samples/s."""

    rate: float
    batch: int


@runtime_checkable
class GoodputModel(Protocol):
    """What a policy may ask of a job whose gradient noise is known; `JobState.scaling` of such a job.

    Goodput is throughput x statistical efficiency (3.1, Eq. 6): the samples/s of the job's first batch size that would
    bring it as far as fast.
    """

    tried: int
    """The most devices that it has had so far."""

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """Goodput on so many devices of so many nodes at a batch size."""
        ...

    def worker_rate(self, kind: str) -> float:
        """As `Scaling.worker_rate`."""
        ...

    def tuned(self, devices: int, nodes: int) -> Tuned:
        """The best batch size on so many devices of so many nodes, filled one after another."""
        ...


_LEAST = 1e-3  # speedup of a job without devices, so that its inverse is finite


class _Choice(NamedTuple):
    job: JobState
    losses: Floats  # by devices, 0 .. : (scaled speedup) ** power


@dataclass(frozen=True)
class Pollux(Policy):
    """At each interval the devices that make the power mean of the jobs' speedups largest.

    SPEEDUP_j is the goodput of job j over that with its fair share of the devices (4.2.1). The fitness of an allocation
    is (1 / J sum_j SPEEDUP_j^p)^(1 / p) (Eq. 14). A job whose devices change counts (T_j - R_j d) / (T_j + d) of
    its speedup, with its age T_j, its restarts R_j and the delay d of one (4.2.1, re-allocation penalty). A job gets at
    most twice as many devices as it has tried, for what its goodput is there nobody has measured (4.1).

    The sum is over jobs, so that a dynamic program over devices finds its best, where the authors have a genetic
    algorithm over jobs x nodes. Jobs are placed on as few nodes as there are free; who keeps his devices stays.
    Where a job's gradient noise is not known its goodput is its throughput, and its batch size stays.

    Args:
        interval: seconds between two plans.
        power: p; below 0; the lower, the fairer.
        delay: seconds that a restart is taken to cost.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "pollux"

    interval: float = 60.0
    power: float = -1.0
    delay: float = 30.0

    def __post_init__(self) -> None:
        check_period("interval", self.interval)
        if not -math.inf < self.power < 0:
            raise ValueError(f"power is {self.power}; it must be below 0, and finite")
        check_seconds("delay", self.delay)

    def plan(self, state: State) -> Plan:
        """Counts by the dynamic program, then devices, then batch sizes."""
        if not state.by_name:
            return Plan()
        each, most = max(state.cluster.devices_per_node), len(state.available)
        fair = max(1, -(-most // len(state.by_name)))
        choices = [_Choice(job, self._losses(job, state, fair, most, each)) for job in state.jobs]
        counts = _best_counts(choices, most)
        placed = placed_or_staying(counts, state)
        batches = {name: batch for name, devices in placed.items() if (batch := _batch(state, name, devices))}
        wake = self.trigger.next_end(state.time)
        return Plan(placed, batches=batches, wake=wake)

    def _losses(self, job: JobState, state: State, fair: int, most: int, each: int) -> Floats:
        """How much each count from 0 on adds to the sum that should be small."""
        rates = _rates(job, min(job.limit, max(most, 1)), each)
        tried = job.scaling.tried if isinstance(job.scaling, GoodputModel) else job.limit
        reach = min(len(rates), max(1, 2 * tried), max(most, 1))
        speedups = rates[:reach] / rates[min(fair, len(rates)) - 1]
        age = state.time - job.arrival
        factor = max(0.0, age - job.restarts * self.delay) / (age + self.delay) if age + self.delay else 0.0
        held = len(state.running.get(job.name, ()))
        moved = speedups * factor if held or job.attained else speedups
        scaled = np.concatenate(([0.0], moved))
        if 0 < held <= reach:
            scaled[held] = speedups[held - 1]
        losses: Floats = (scaled + _LEAST) ** self.power
        return losses


def _rates(job: JobState, limit: int, each: int) -> Floats:
    """Goodput on 1 .. limit devices that fill nodes one after another, with the best batch size for each."""
    scaling = job.scaling
    if not isinstance(scaling, GoodputModel) or job.batches is None:
        return job.rate.rates(limit)
    return np.array([scaling.tuned(count, -(-count // each)).rate for count in range(1, limit + 1)])


def _best_counts(choices: list[_Choice], devices: int) -> dict[str, int]:
    """The counts with the smallest sum of losses that need no more than so many devices; the smaller wins a tie."""
    least = np.zeros(devices + 1)
    chosen: list[npt.NDArray[np.int64]] = []
    for _, losses in choices:
        sums = np.full((len(losses), devices + 1), math.inf)
        for count, loss in enumerate(losses[: devices + 1]):
            sums[count, count:] = least[: devices + 1 - count] + loss
        chosen.append(np.argmin(sums, axis=0))
        least = np.min(sums, axis=0)
    counts: dict[str, int] = {}
    left = devices
    for (job, _), column in zip(reversed(choices), reversed(chosen)):
        counts[job.name] = int(column[left])
        left -= counts[job.name]
    return {job.name: counts[job.name] for job, _ in choices if counts[job.name]}


def _batch(state: State, name: str, devices: tuple[int, ...]) -> int | None:
    """The batch size that a job should have there, if it is another than it has."""
    job = state.by_name[name]
    if not isinstance(job.scaling, GoodputModel) or job.batches is None:
        return None
    nodes = len({state.cluster.node_of(device) for device in devices})
    batch = job.scaling.tuned(len(devices), nodes).batch
    return None if batch == job.batch else batch
