"""Jobs that may have any batch between the measured ones of their model (as Saxena et al., 2020, have them)."""

from __future__ import annotations

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.job_state import JobState
from fleet.simulator.machines.arrivals import Costs
from fleet.simulator.machines.machine import MeasuredMachine
from fleet.simulator.rates.batch_rates import BatchRates, BatchSurface
from fleet.simulator.traces.job import TraceJob


class BatchRangeMachine(MeasuredMachine):
    """A `MeasuredMachine` whose jobs may get another batch from a policy, of those between the measured ones.

    Args:
        cluster: nodes and devices.
        rates: the measured rates.
        costs: costs of moves.
        guaranteed: priority from which a job is a guaranteed one; None: none is.
    """

    def __init__(self, cluster: Cluster, rates: BatchRates, costs: Costs, guaranteed: int | None = None) -> None:
        super().__init__(cluster, rates, costs, guaranteed)
        self._ranges = rates
        self._scalings: dict[str, BatchSurface] = {}

    def arriving(self, job: TraceJob) -> JobState:
        """As `Machine.arriving`."""
        scaling = self._scaling(job.model)
        return super().arriving(job).changed(scaling=scaling, batches=(scaling.batches[0], scaling.batches[-1]))

    def _scaling(self, model: str) -> BatchSurface:
        if model not in self._scalings:
            self._scalings[model] = self._ranges.scaling(model, self._cluster.size)
        return self._scalings[model]
