"""Gives models, work and deadlines to traces that say only how long a job took on how many devices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fleet.simulator.traces.columns import JobColumns
from fleet.simulator.traces.draws import MeasuredRates, Mix, models_of, uniform
from fleet.simulator.traces.trace import Trace


def with_models(
    trace: Trace,
    rates: MeasuredRates,
    seed: int = 0,
    mix: Mix | None = None,
    tightness: tuple[float, float] | None = None,
) -> Trace:
    """The trace, every job with a model and a batch size drawn from the table (ElasticFlow, ASPLOS'23, 6.1).

    `work` is what the job does in its duration on its devices, in whole steps and at least one; the duration stays.

    Args:
        mix: weights of the draws; None: all entries of the table alike.
        tightness: bounds of lambda, uniform; deadlines are the arrival + lambda * duration. None: as they are.

    Raises:
        UnknownRate: `mix` names a model or a batch size that the table does not hold.
        ValueError: a job has no duration.
    """
    jobs = trace.jobs
    if np.isnan(jobs.duration).any():
        name = jobs.name[int(np.flatnonzero(np.isnan(jobs.duration))[0])]
        raise ValueError(f"job {name} has no duration; only with one does it follow how much it did")
    keys, which = models_of(mix, rates, seed, len(jobs))
    longest = int(jobs.devices.max())
    grid = np.stack([rates.rates(model, batch, longest) for model, batch in keys])
    work = np.maximum(1.0, np.rint(jobs.duration * grid[which, jobs.devices - 1]))
    batch_size = np.array([batch for _, batch in keys], dtype=np.float64)[which]
    columns = {name: getattr(jobs, name) for name in jobs.__dataclass_fields__}
    columns |= {"batch_size": batch_size, "work": work, "samples": work * batch_size}
    columns["model"] = [keys[i][0] for i in which.tolist()]
    if tightness is not None:
        low, high = tightness
        columns["deadline"] = (
            jobs.arrival + (low + (high - low) * uniform(seed, "tightness", len(jobs))) * jobs.duration
        )
    return replace(trace, jobs=JobColumns.of(**columns))
