"""How the losses of a trace's jobs fall, shown to policies as far as the jobs have trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fleet.scheduling.model.jobs import JobState

_AT_ITS_END = 1e-9  # part of an epoch: a job so near its end has finished it


class LossCurves:
    """The losses that policies may know at any time, which are the finished epochs' losses.

    Args:
        losses: job -> the loss of each epoch, from the first.
    """

    def __init__(self, losses: Mapping[str, tuple[float, ...]]) -> None:
        self._losses = losses

    def changed(self, jobs: Iterable[JobState], now: float) -> Iterator[JobState]:
        """The jobs that have finished epochs since they were looked at, with the losses of these."""
        if not self._losses:
            return
        for job in jobs:
            curve = self._losses.get(job.name, ())
            finished = int(job.trained_at(now) / job.epoch + _AT_ITS_END) if job.epoch else 0
            if len(job.losses) < min(finished, len(curve)):
                yield job.changed(losses=curve[:finished])
