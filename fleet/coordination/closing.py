"""What the ends of epochs take, of which rates know nothing: evaluation, and the checkpoint."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from fleet.coordination.stop_time import StopTime
from fleet.scheduling.model.job_state import JobState


def with_closings(jobs: Sequence[JobState], times: StopTime) -> tuple[JobState, ...]:
    """Return the jobs, those with deadlines as fast as they are with the ends of their epochs.

    One that has ended no epoch yet is thought to take what others of its data set take in the median, or all others.
    """
    if all(job.deadline == math.inf for job in jobs):
        return tuple(jobs)
    own = {job.name: seconds for job in jobs if (seconds := times.epoch_end(job.name)) is not None}
    of_data = defaultdict[str, list[float]](list)
    for job in jobs:
        if job.name in own:
            of_data[job.data].append(own[job.name])
    usual = {data: median(seconds) for data, seconds in of_data.items()}
    unknown = median(own.values()) if own else 0.0

    def closed(job: JobState) -> JobState:
        closing = own.get(job.name, usual.get(job.data, unknown))
        return job if job.deadline == math.inf else _held_up(job, closing)

    return tuple(map(closed, jobs))


def _held_up(job: JobState, closing: float) -> JobState:
    """The job if each end of an epoch takes so many seconds."""
    seconds = closing / job.epoch if job.epoch else 0.0
    if not seconds:
        return job
    return job.changed(rate=job.rate.held_up(seconds), pace=1 / (1 / job.pace + seconds) if job.pace else 0.0)
