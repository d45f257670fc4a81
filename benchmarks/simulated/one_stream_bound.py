"""The bound of schedules that give all jobs that train at a time one pace, as one shared stream does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.policies.sharing import NEVER, fewest_devices, knapsacks


def one_stream_bound(jobs: Sequence[JobState], samples: Floats, devices: int, steps: int = 80) -> float:
    """Seconds below which no schedule ends all jobs if all that train at a time go at one pace.

    At pace p job i needs the fewest devices m_i(p) with r_i(m) >= p. For any prices lambda_i >= 0 of a sample

        T >= sum_i lambda_i w_i / max_p max_x { sum_i lambda_i p x_i : sum_i m_i(p) x_i <= M, 0 <= x_i <= 1 },

    as no instant brings more than the maximum, a fractional knapsack. So every step of the search for prices gives a
    bound, and the best is taken. The paces at which a device less is enough are the only ones that matter.

    Args:
        samples: what each job has still to train; shape (jobs,).
        devices: M.
        steps: how many the search takes.
    """
    rows = [job.rate.rising(min(job.limit, devices)) for job in jobs]
    paces = np.unique(np.concatenate([rates for _, rates in rows]))
    counts = np.stack([fewest_devices(row, paces) for row in rows], axis=1)
    prices = np.array([1 / rates[0] for _, rates in rows])
    best = 0.0
    for step in range(steps):
        values, taken = knapsacks(np.where(counts < NEVER, prices * paces[:, None], 0.0), counts, devices)
        top = int(values.argmax())
        worth = prices * samples
        best = max(best, float(worth.sum() / values[top]))
        short = worth / worth.sum() - prices * paces[top] * taken[top] / values[top]
        prices = prices * np.exp(np.clip(short * len(jobs) * 0.5 / np.sqrt(step + 1), -1.0, 1.0))
    return best
