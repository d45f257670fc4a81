"""The machine of a run that has not begun: its jobs train at the rate curves that the run would start with."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

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
    """

    curves: Mapping[str, RateCurve]
    scalings: Mapping[str, BatchScaling] = field(default_factory=dict)
    guaranteed: Collection[str] = ()


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
        return state if scaling is None else state.changed(scaling=scaling, batches=scaling.range.ends)

    def lasts(self, job: JobState) -> float:
        """As `StagedMachine.lasts`: the only stage has no end before the job's."""
        return math.inf

    def begun(self, job: JobState, devices: tuple[int, ...]) -> JobState:
        """As `StagedMachine.begun`: its batch is fixed."""
        scaling = self._of_spec.scalings.get(job.name)
        if scaling is None or job.scaling is None or job.batch is None:
            return job
        batch = scaling.range.nearest(job.batch)
        return job.changed(rate=scaling.curve_of(batch), batch=batch, scaling=None, batches=None)

    def advanced(self, job: JobState) -> JobState:
        """As `StagedMachine.advanced`; nothing changes."""
        return job

    def _curve(self, job: TraceJob) -> RateCurve:
        return self._of_spec.curves[job.name]
