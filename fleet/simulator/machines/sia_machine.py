"""A machine of several kinds of device on which a job's pace is its goodput, by placement, batch and epoch (Sia)."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import numpy as np

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.arrivals import Costs, arrived
from fleet.simulator.machines.epoch_ends import REPORT
from fleet.simulator.machines.machine import Adapting
from fleet.simulator.machines.sia_agent import Placement, SiaAgent
from fleet.simulator.machines.sia_scaling import OwnRates, SiaScaling, profiled
from fleet.simulator.rates.rates import unknown
from fleet.simulator.rates.sia_rates import SiaRates, smallest_rotation
from fleet.simulator.traces.job import TraceJob

MOST_DEVICES = 64
"""No job uses more."""
_LOOK = 0.5  # seconds of steps after which a job has measured them
_ROUNDING = 1e-9  # of a report's interval
_NEAR = 1e-5


class SiaMachine:
    """Jobs that get on as Sia's measurements say; a `StagedMachine`, whose stages are epochs, and reports in them.

    A job's samples are counted at its application's smallest batch size, so that its pace is its goodput. It is done
    when its last epoch is. Epochs end at whole seconds, as in the authors' simulator. Going to as many devices of as
    many nodes of the same kind costs nothing; all other moves cost the restart of the application.

    Args:
        cluster: nodes and devices, each node with its kind.
        rates: the measured rates.
        costs: what a restart costs instead; None: what each application says.
        adapting: what the policy lets jobs do.
    """

    def __init__(
        self, cluster: Cluster, rates: SiaRates, costs: Costs | None = None, adapting: Adapting | None = None
    ) -> None:
        self._cluster, self._rates, self._costs, self._adapting = cluster, rates, costs, adapting or Adapting()
        self._kinds = [kind or rates.kinds[0] for kind in cluster.counts()]
        self._per_node = {kind or rates.kinds[0]: cluster.per_node(kind) for kind in cluster.counts()}
        self._counts = {kind or rates.kinds[0]: count for kind, count in cluster.counts().items()}
        self._own = cache(self._computed_own)
        self._agent = cache(lambda model: SiaAgent(rates.application(model)))
        self._total: dict[str, float] = {}
        self._where = cache(self._placement)

    @property
    def cluster(self) -> Cluster:
        """As `Machine.cluster`."""
        return self._cluster

    def under(self, adapting: Adapting) -> SiaMachine:
        """As `AdaptingMachine.under`."""
        return SiaMachine(self._cluster, self._rates, self._costs, adapting)

    def arriving(self, job: TraceJob) -> JobState:
        """As `Machine.arriving`."""
        if job.batch_size is None:
            raise unknown("batch size", "", self._rates.application(job.model).validation)
        own = self._own(job.model, job.batch_size)
        agent = own.agent
        scaling = SiaScaling(own, self._per_node, keys={})
        total = float(agent.application.ends[-1]) * agent.first
        self._total[job.name] = total
        limit = min(self._cluster.size, own.most)
        return arrived(
            job, own.curves[own.home], limit, total, self._costs or Costs(restart=agent.application.restart),
            gang=min(job.devices, limit), mixed_kinds=False, kind="",
            epoch=total / agent.application.epochs, scaling=profiled(scaling) if self._adapting.profiled else scaling,
        )  # fmt: skip

    def pace(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.pace`: its goodput there, in the epoch in which it is."""
        return (_scaling(job) if job.held else self._landed(job, devices)).pace

    def delay(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.delay`."""
        if self._costs is not None:
            return self._costs.delay(job)
        return _scaling(job).own.agent.application.restart

    def is_free(self, job: JobState, devices: tuple[int, ...]) -> bool:
        """As `AdaptingMachine.is_free`: the kind and the devices of each node stay as they are."""
        kind, placement = self._where(devices)
        scaling = _scaling(job)
        return scaling.kind == kind and scaling.placement == placement

    def lasts(self, job: JobState) -> float:
        """As `StagedMachine.lasts`: until the end of its epoch, or until it reports what changes its batch."""
        scaling = _scaling(job)
        report = _until_report(job, scaling) * job.pace
        return report if _is_last(scaling) else min(self._left(job, scaling), report)

    def begun(self, job: JobState, devices: tuple[int, ...]) -> JobState:
        """As `StagedMachine.begun`: it has chosen its batch there."""
        scaling = self._landed(job, devices)
        return job.changed(scaling=scaling, pace=job.pace if scaling.keys is None else scaling.pace)

    def advanced(self, job: JobState) -> JobState:
        """As `StagedMachine.advanced`."""
        scaling = _scaling(job)
        left, report = self._left(job, scaling), _until_report(job, scaling) * job.pace
        if left <= report:
            end = job.ready + left / job.pace
            between = abs(end / REPORT - round(end / REPORT)) > _NEAR  # else it tells of the last epoch first
            return job.changed(epochs=job.epochs + 1, scaling=scaling.after_epoch(self._adapting.tunes, between, end))
        if not scaling.measured:
            return job.changed(scaling=scaling.looked())
        return job.changed(scaling=scaling.reported(left - report, job.ready + report / job.pace))

    def _landed(self, job: JobState, devices: tuple[int, ...]) -> SiaScaling:
        scaling = _scaling(job)
        return scaling.landed(*self._where(devices), self._left(job, scaling), self._adapting.tunes, job.ready)

    def _left(self, job: JobState, scaling: SiaScaling) -> float:
        """Samples to the end of the epoch."""
        agent = scaling.own.agent
        return float(agent.application.ends[scaling.epoch]) * agent.first - self._total[job.name] + job.remaining

    def _placement(self, devices: tuple[int, ...]) -> tuple[str, Placement]:
        kind = self._cluster.kind_of(devices[0]) or self._kinds[0]
        return kind, smallest_rotation(list(Counter(map(self._cluster.node_of, devices)).values()))

    def _computed_own(self, model: str, batch: int) -> OwnRates:
        agent = self._agent(model)
        application = agent.application
        least = min(application.kinds[kind].min_local for kind in self._kinds)
        most = min(MOST_DEVICES, application.largest_batch // least)
        own = OwnRates(agent, batch, {}, self._kinds[0], most, model)
        curves = {kind: self._curve(own, kind) for kind in self._kinds}
        return OwnRates(agent, batch, curves, self._kinds[0], most, model)

    def _curve(self, own: OwnRates, kind: str) -> RateCurve:
        """Goodput at the own batch size in the mean of all epochs, on nodes that are filled one after another."""
        agent, each = own.agent, self._per_node[kind]
        total = float(agent.application.ends[-1]) * agent.first
        parts = np.diff(agent.application.ends, prepend=0.0) * agent.first
        measured, most = {}, max(each, min(own.most, self._counts[kind]))
        for devices in sorted({1, min(2, each), *range(each, most + 1, each)}):
            placement = (each,) * (devices // each) or (devices,)
            split = agent.chosen(kind, placement, own.batch)
            paces = [agent.goodput(kind, placement, split, epoch) for epoch in range(agent.application.epochs)]
            measured[devices] = total / float((parts / np.array(paces)).sum())
        return RateCurve(measured, each, limit=most)


def _is_last(scaling: SiaScaling) -> bool:
    return scaling.epoch + 1 >= scaling.own.agent.application.epochs


def _until_report(job: JobState, scaling: SiaScaling) -> float:
    """Seconds until the job's batch may change within its epoch; infinite: it does not."""
    if not scaling.measured:
        return _LOOK
    if scaling.coming == scaling.split:
        return math.inf
    return (math.floor(job.ready / REPORT + _ROUNDING) + 1) * REPORT - job.ready


def _scaling(job: JobState) -> SiaScaling:
    if not isinstance(job.scaling, SiaScaling):
        raise ValueError(f"job {job.name} did not arrive on this machine: its goodput is not known")
    return job.scaling
