"""Which jobs can share samples at any time: those at the same epoch of the same stream, as in a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fleet.scheduling.model.jobs import JobState

_AT_ITS_END = 1e-6  # part of an epoch: a job so near its end has finished it


class SharingClasses:
    """Shows policies the epochs that jobs have finished, and their sharing classes: stream and epoch.

    A job whose samples of an epoch are not known stays in the class of its stream.

    Args:
        by_epoch: whether jobs share at the same epoch alone; otherwise their classes stay as they are.
    """

    def __init__(self, by_epoch: bool) -> None:
        self._by_epoch = by_epoch
        self._streams: dict[str, str] = {}

    def arrived(self, job: JobState) -> None:
        """A job is there; its stream is known."""
        if self._by_epoch and job.stream and job.epoch:
            self._streams[job.name] = job.stream

    def place(self, job: JobState) -> float:
        """Samples of its epoch that a job that stands still has trained; 0 where classes have no epochs."""
        return max(0.0, job.trained - job.epochs * job.epoch) if job.name in self._streams else 0.0

    def changed(self, jobs: Iterable[JobState], now: float) -> Iterator[JobState]:
        """The jobs that are at another epoch than when they were looked at, with the classes of these."""
        if not self._streams:
            return
        for job in jobs:
            stream = self._streams.get(job.name)
            if stream is not None:
                finished = int(job.trained_at(now) / job.epoch + _AT_ITS_END)
                if finished != job.epochs or job.stream == stream:
                    yield job.changed(epochs=finished, stream=f"{stream}/{finished}")
