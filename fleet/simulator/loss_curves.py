"""How the losses of a trace's jobs fall, shown to policies as far as the jobs have trained."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.scheduling.model.job_state import JobState

_AT_ITS_END = 1e-9  # part of an epoch: a job so near its end has finished it


class LossCurves:
    """The losses that policies may know at any time, which are the finished epochs' losses.

    Args:
        losses: job -> the loss of each epoch, from the first.
    """

    def __init__(self, losses: Mapping[str, tuple[float, ...]]) -> None:
        self._losses = losses

    def show(self, jobs: dict[str, JobState], now: float) -> None:
        """Give the jobs the losses of the epochs that they have finished by now."""
        if not self._losses:
            return
        for name, job in jobs.items():
            curve = self._losses.get(name, ())
            finished = int(job.trained_at(now) / job.epoch + _AT_ITS_END) if job.epoch else 0
            if len(job.losses) < min(finished, len(curve)):
                jobs[name] = job.changed(losses=curve[:finished])
