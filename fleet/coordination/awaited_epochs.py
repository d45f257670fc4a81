"""Which epochs of a stream are read again, by networks that do not read them now."""

from __future__ import annotations

from collections.abc import Collection

from fleet.coordination.ledger import Ledger
from preprocess import StreamKey


class AwaitedEpochs:
    """Tells from the run's books which epochs come again.

    Args:
        ledger: knows where each job stands.
        searches: trials may come, which begin at the first epoch.
    """

    def __init__(self, ledger: Ledger, searches: bool) -> None:
        self._ledger, self._searches = ledger, searches

    def first(self, key: StreamKey, jobs: Collection[str]) -> int | None:
        """The first epoch of a stream that others than these jobs have yet to read; None: no other job has."""
        stream = f"{key.data}/{key.seed}"
        if self._searches and any(job.stream == stream and job.name not in jobs for job in self._ledger.jobs.values()):
            return 0
        others = (job for job in self._ledger.unfinished if job.stream == stream and job.name not in jobs)
        return min((job.epoch for job in others), default=None)
