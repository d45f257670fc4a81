"""A machine on which a job's pace is its goodput, by placement, batch size and epoch (Pollux, OSDI'21, 5.3)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.variable_batch.goodput import Tuned
from fleet.simulator.machines.arrivals import Costs, arrived
from fleet.simulator.machines.machine import MachineOfCosts
from fleet.simulator.rates.pollux_rates import Application, PolluxRates
from fleet.simulator.rates.rates import unknown
from fleet.simulator.traces.job import TraceJob

MOST_DEVICES = 64
"""The authors' measurements end there."""
CANDIDATES = 50
"""Batch sizes that a job looks at, in a geometric series."""
RIGID = ("ncf",)
"""Applications whose batch size the authors' simulator leaves as it is."""
_ROUNDING = 1e-6  # of an epoch


class Agent:
    """What an application's jobs know of themselves (PolluxAgent, 4.1), tabulated as it is asked for.

    Args:
        application: its measurements.
        rigid: its batch size, if that must not change.
    """

    def __init__(self, application: Application, rigid: int | None) -> None:
        self.application, self.rigid = application, rigid
        self.ends: Floats = np.array([application.progress(epoch + 1) for epoch in range(application.epochs)])
        self._sizes = np.array(list(application.validation), dtype=np.float64)
        self._tables = [self._noise(epoch) for epoch in range(application.epochs)]
        self.iteration = cache(application.iteration)
        self.tuned = cache(self._tuned)
        self._grid = cache(self._seconds)

    @property
    def largest(self) -> int:
        """The largest batch size."""
        return int(self._sizes[-1])

    def gain(self, batch: Floats | float, epoch: int) -> Floats:
        """How far one step brings a job, in steps of the smallest batch size: r of AdaScale (Eq. 5).

        With the scale s = M / M_0, gradient variance v and squared length g:  (v + g) / (v / s + g).
        """
        variance, square = (np.interp(batch, self._sizes, table) for table in self._tables[epoch])
        scale = np.asarray(batch) / self.application.initial_batch
        gain: Floats = (variance + square) / (variance / scale + square)
        return gain

    def goodput(self, placement: tuple[int, ...], batch: int, epoch: int) -> float:
        """Samples/s of the smallest batch size that bring it as far."""
        return self.application.initial_batch * float(self.gain(batch, epoch)) / self.iteration(placement, batch)

    def _noise(self, epoch: int) -> tuple[Floats, Floats]:
        noise = [self.application.noise(batch, epoch) for batch in self.application.validation]
        return np.array([each.var for each in noise]), np.array([each.sqr for each in noise])

    def _seconds(self, placement: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Batch sizes on a placement, and the seconds of a step of each."""
        devices = sum(placement)
        least = max(self.application.initial_batch, self.application.min_local * devices)
        if self.rigid is not None or least >= self.largest:
            batches = np.array([self.rigid or self.largest], dtype=np.float64)
        else:
            batches = np.unique(np.floor(np.geomspace(least, self.largest, CANDIDATES) + _ROUNDING))
        return batches, np.array([self.iteration(placement, int(batch)) for batch in batches])

    def _tuned(self, placement: tuple[int, ...], epoch: int) -> Tuned:
        batches, seconds = self._grid(placement)
        goodput = self.application.initial_batch * self.gain(batches, epoch) / seconds
        best = int(np.argmax(goodput))
        return Tuned(float(goodput[best]), int(batches[best]))


@dataclass(frozen=True)
class PolluxScaling:
    """A job's goodput in the epoch in which it is: a `fleet.scheduling.variable_batch.goodput.GoodputModel`.

    Args:
        agent: the agent of its application.
        epoch: from 0.
        batch: its own batch size.
        tried: the most devices that it has had so far.
    """

    agent: Agent
    epoch: int
    batch: int
    tried: int = 0

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """As `GoodputModel.rate`."""
        return self.agent.goodput(_spread(devices, nodes), batch or self.batch, self.epoch)

    def worker_rate(self, kind: str) -> float:
        """As `Scaling.worker_rate`; devices are all alike here."""
        return self.agent.goodput((1,), self.batch, self.epoch) / self.batch

    def tuned(self, devices: int, nodes: int) -> Tuned:
        """As `GoodputModel.tuned`."""
        return self.agent.tuned(_spread(devices, nodes), self.epoch)


class PolluxMachine(MachineOfCosts):
    """Jobs that get on as Pollux' measurements say; a `StagedMachine`, whose stages are epochs.

    A job's samples are counted at its application's smallest batch size, so that its pace is its goodput. It is done
    when its last epoch is; where the trace says how many steps it has, it has that share of the epochs.

    Args:
        cluster: nodes and devices.
        rates: the measured rates.
        costs: costs of moves.
    """

    def __init__(self, cluster: Cluster, rates: PolluxRates, costs: Costs | None = None) -> None:
        super().__init__(cluster, costs)
        self._rates = rates
        self._agents: dict[tuple[str, int | None], Agent] = {}
        self._totals: dict[str, float] = {}
        self._curve = cache(self._computed_curve)

    def arriving(self, job: TraceJob) -> JobState:
        """As `Machine.arriving`."""
        if job.batch_size is None:
            raise unknown("batch size", "", self._rates.application(job.model).validation)
        agent, batch = self._agent(job.model, job.batch_size), job.batch_size
        share = 1.0 if job.work is None else job.work / agent.application.work(batch)
        total = share * float(agent.ends[-1]) * agent.application.initial_batch
        self._totals[job.name] = total
        limit = min(self._cluster.size, MOST_DEVICES, max(1, agent.largest // agent.application.min_local))
        return arrived(
            job,
            self._curve(agent, batch, 0, limit),
            limit,
            total,
            self._costs,
            gang=min(job.devices, limit),
            batches=None if agent.rigid else (agent.application.initial_batch, agent.largest),
            scaling=PolluxScaling(agent, 0, batch),
        )

    def pace(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.pace`: the goodput of its batch size where it is, in the epoch in which it is."""
        scaling = _scaling(job)
        return scaling.agent.goodput(self._placement(devices), job.batch or scaling.batch, scaling.epoch)

    def lasts(self, job: JobState) -> float:
        """As `StagedMachine.lasts`: the samples that are left of its epoch."""
        scaling = _scaling(job)
        if scaling.epoch + 1 >= len(scaling.agent.ends):
            return math.inf
        first = scaling.agent.application.initial_batch
        return float(scaling.agent.ends[scaling.epoch]) * first - self._totals[job.name] + job.remaining

    def begun(self, job: JobState, devices: tuple[int, ...]) -> JobState:
        """As `StagedMachine.begun`: it has now tried so many devices."""
        scaling = _scaling(job)
        tried = PolluxScaling(scaling.agent, scaling.epoch, scaling.batch, max(scaling.tried, len(devices)))
        return job.changed(scaling=tried)

    def advanced(self, job: JobState) -> JobState:
        """As `StagedMachine.advanced`: its next epoch begins."""
        before = _scaling(job)
        agent, epoch = before.agent, before.epoch + 1
        return job.changed(
            epochs=epoch,
            scaling=PolluxScaling(agent, epoch, before.batch, before.tried),
            rate=self._curve(agent, before.batch, epoch, job.limit),
        )

    def _agent(self, model: str, batch: int) -> Agent:
        key = model, batch if model in RIGID else None
        if key not in self._agents:
            self._agents[key] = Agent(self._rates.application(model), key[1])
        return self._agents[key]

    def _computed_curve(self, agent: Agent, batch: int, epoch: int, limit: int) -> RateCurve:
        """On devices that fill nodes one after another, at a batch size that stays as it is."""
        each = max(self._cluster.devices_per_node)
        counts = range(1, limit + 1)
        measured = {count: agent.goodput(_spread(count, -(-count // each)), batch, epoch) for count in counts}
        return RateCurve(measured, each, limit=limit)

    def _placement(self, devices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(Counter(self._cluster.node_of(device) for device in devices).values())


def _scaling(job: JobState) -> PolluxScaling:
    if not isinstance(job.scaling, PolluxScaling):
        raise ValueError(f"job {job.name} did not arrive on this machine: its goodput is not known")
    return job.scaling


@cache
def _spread(devices: int, nodes: int) -> tuple[int, ...]:
    """Devices on each of so many nodes, as evenly as they go."""
    each = -(-devices // nodes)
    full, rest = divmod(devices, each)
    return (each,) * full + ((rest,) if rest else ())
