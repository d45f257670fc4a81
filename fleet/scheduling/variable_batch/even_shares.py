"""How long each job would take on an even share of the devices: what fairness holds its end against (Themis, 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.job_state import JobState


class EvenShares:
    """The mean number of jobs that were there beside each one, as a policy sees it at its plans."""

    def __init__(self) -> None:
        self._count, self._time = 0, 0.0
        self._passed = 0.0  # job seconds until `_time`
        self._came: dict[str, tuple[float, float]] = {}  # job -> when it was first seen, and the job seconds then

    def see(self, jobs: Sequence[JobState], now: float) -> None:
        """Note who is there.

        Args:
            jobs: the unfinished ones.
            now: seconds since the run began; no earlier than at the last look.
        """
        self._passed += self._count * (now - self._time)
        self._count, self._time = len(jobs), now
        unfinished = {job.name for job in jobs}
        for gone in self._came.keys() - unfinished:
            del self._came[gone]
        for job in jobs:
            self._came.setdefault(job.name, (now, self._passed))

    def seconds(self, jobs: Sequence[JobState], samples: Floats, devices: int) -> Floats:
        """What so many samples take each job on M / N devices, at least one and at most its limit.

        N is the mean number of unfinished jobs since it came.

        Args:
            jobs: those of the last look.
            samples: of each; shape (jobs,).
            devices: M, of all kinds together; each counts as one of the kind that the job is at home on.

        Returns:
            float64 of shape (jobs,).
        """
        rates = np.empty(len(jobs))
        for row, job in enumerate(jobs):
            since, before = self._came[job.name]
            age = self._time - since
            others = (self._passed - before) / age if age > 0 else float(self._count)
            rates[row] = job.rate(max(1, min(int(devices / others), job.limit)))
        return samples / rates
