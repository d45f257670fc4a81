"""The machine of a run that has not begun: its jobs train at the rate curves that the run would start with."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from fleet.scheduling.easyscale.kind_curves import KindCurves
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.variable_batch.batch_scaling import BatchScaling
from fleet.simulator.machines.arrivals import Costs
from fleet.simulator.machines.machine import MeasuredMachine
from fleet.simulator.rates.rates import RunRates
from fleet.simulator.traces.job import TraceJob


@dataclass(frozen=True)
class SpecRates:
    """What a spec and its profile tell of how fast its jobs train.

    Attributes:
        curves: job -> samples/s by devices, with its own batch.
        scalings: job -> its rates by batch, for jobs whose batch the policy chooses when they first start.
        guaranteed: jobs that take devices from others at once.
        by_kind: job -> its rates on each kind of device, where there are several.
    """

    curves: Mapping[str, RateCurve]
    scalings: Mapping[str, BatchScaling] = field(default_factory=dict)
    guaranteed: Collection[str] = ()
    by_kind: Mapping[str, KindCurves] = field(default_factory=dict)


class RunMachine(MeasuredMachine):
    """A `StagedMachine` of one stage, in which a job's batch stays once it has started, as in a run.

    Args:
        cluster: nodes and devices.
        rates: rates of the jobs.
        costs: costs of moves.
    """

    def __init__(self, cluster: Cluster, rates: SpecRates, costs: Costs) -> None:
        super().__init__(cluster, RunRates(rates.curves), costs)
        self._of_spec = rates

    def arriving(self, job: TraceJob) -> JobState:
        """As `Machine.arriving`."""
        state = super().arriving(job).changed(guaranteed=job.name in self._of_spec.guaranteed)
        scaling = self._of_spec.scalings.get(job.name)
        if scaling is None:
            return state.changed(scaling=self._of_spec.by_kind.get(job.name))
        return state.changed(scaling=scaling, batches=scaling.range.ends)

    def pace(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.pace`; virtual workers are dealt over unlike devices by their speeds."""
        by_kind = self._of_spec.by_kind.get(job.name)
        if by_kind is None:
            return super().pace(job, devices)
        return by_kind.pace(tuple(map(self._cluster.kind_of, devices)))

    def lasts(self, job: JobState) -> float:
        """As `StagedMachine.lasts`: the only stage has no end before the job's."""
        return math.inf

    def begun(self, job: JobState, devices: tuple[int, ...]) -> JobState:
        """As `StagedMachine.begun`: its batch is fixed, and so is its kind of device if its bits hold for one alone."""
        scaling, by_kind = self._of_spec.scalings.get(job.name), self._of_spec.by_kind.get(job.name)
        if by_kind is not None and not job.mixed_kinds:
            there = by_kind.at_home_on(self._cluster.kind_of(devices[0]))
            job = job.changed(kind=there.home, rate=there.curve, scaling=there)
        if scaling is None or job.scaling is None or job.batch is None:
            return job
        batch = scaling.range.nearest(job.batch)
        return job.changed(rate=scaling.curve_of(batch), batch=batch, scaling=None, batches=None)

    def advanced(self, job: JobState) -> JobState:
        """As `StagedMachine.advanced`; nothing changes."""
        return job

    def _curve(self, job: TraceJob) -> RateCurve:
        return self._of_spec.curves[job.name]
