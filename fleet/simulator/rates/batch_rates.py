"""Rates of a job with any batch between the measured ones of its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.simulator.rates.rate_tables import RateTable
from fleet.simulator.traces.job import TraceJob


class BatchRates:
    """A table of rates whose batch sizes are the ends and corners of ranges.

    Args:
        table: steps/s by model, batch size and devices.
    """

    def __init__(self, table: RateTable) -> None:
        self.table = table

    def of(self, job: TraceJob, limit: int) -> Floats:
        """As `Rates.of`: with the job's own batch."""
        return self.table.of(job, limit)

    def scaling(self, model: str, most: int) -> BatchSurface:
        """How fast a model trains with any batch, on up to `most` devices.

        Raises:
            UnknownRate: the model was not measured.
        """
        batches = self.table.batches(model)
        steps = np.stack([self.table.rates(model, batch, most) for batch in batches])
        return BatchSurface(batches, 1 / steps)


@dataclass(frozen=True, eq=False)
class BatchSurface:
    """T(b, k) = b / t(b, k), samples/s; a `Scaling`. t lies on the straight line between the measured batches.

    Attributes:
        batches: those that were measured, ascending.
        seconds: t(b, k), of a step with each of them on k = 1, 2, ... devices; shape (batches, devices).
    """

    batches: Sequence[int]
    seconds: Floats

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """As `Scaling.rate`; 0 for a batch outside the measured ones. None: the largest. Nodes do not matter."""
        chosen = self.batches[-1] if batch is None else batch
        if not self.batches[0] <= chosen <= self.batches[-1]:
            return 0.0
        return chosen / float(np.interp(chosen, self.batches, self.seconds[:, devices - 1]))

    def worker_rate(self, kind: str) -> float:
        """As `Scaling.worker_rate`, with the smallest batch; kinds are alike."""
        return 1 / float(self.seconds[0, 0])
