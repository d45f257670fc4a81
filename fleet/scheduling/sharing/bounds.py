"""When a plan is expected to end, beside the bound below which no plan can (`water_fill`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.job_state import JobState


def expected_end(jobs: Sequence[JobState], samples: Floats, counts: Counts, devices: int) -> float:
    """Seconds until all jobs end if those with devices keep them, and each other gets one as it becomes free.

    A job that waits begins, at the latest, when all devices have been busy with the work of the others (Graham, 1969):
    sum of the device-seconds / M + the longest of those that wait.

    Args:
        samples: what each job has still to train; shape (jobs,).
        counts: devices of each from now on, 0: it waits.
        devices: M.
    """
    rates = np.array([job.pace for job in jobs])
    for index in np.flatnonzero((rates <= 0) | (np.array([job.held for job in jobs]) != counts)).tolist():
        rates[index] = jobs[index].rate(max(1, int(counts[index])))
    seconds = samples / rates + np.array([job.restart for job in jobs])
    waits = counts == 0
    longest = float(seconds[~waits].max(initial=0.0))
    if not waits.any():
        return longest
    area = float((seconds * np.maximum(counts, 1)).sum())
    return max(longest, area / devices + float(seconds[waits].max()))
