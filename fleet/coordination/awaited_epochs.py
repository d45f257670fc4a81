"""Which epochs of a stream are read again, by networks that do not read them now."""

from __future__ import annotations

from collections.abc import Collection, Mapping

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

    @property
    def gone(self) -> int:
        """Grows whenever a job will read no more, for now or for good."""
        return self._ledger.jobs.gone

    def first(self, key: StreamKey, jobs: Collection[str]) -> int | None:
        """The first epoch of a stream that others than these jobs have yet to read; None: no other job has."""
        stream = name_of(key)
        if self._searches and any(job.stream == stream and job.name not in jobs for job in self._ledger.jobs.values()):
            return 0
        others = (job for job in self._ledger.unfinished if job.stream == stream and job.name not in jobs)
        return min((job.epoch for job in others), default=None)

    def of_all(self, lanes: Mapping[int, Collection[str]]) -> dict[str, tuple[int | None, dict[int, int]]]:
        """What is still to be read of each stream, by its name, where no trials come: see `StreamAwaited`.

        Args:
            lanes: open ones, each with the jobs that read it.
        """
        lane_of = {job: number for number, jobs in lanes.items() for job in jobs}
        found: dict[str, dict[int | None, int]] = {}
        for job in self._ledger.unfinished:
            firsts, lane = found.setdefault(job.stream, {}), lane_of.get(job.name)
            firsts[lane] = min(job.epoch, firsts.get(lane, job.epoch))
        return {
            stream: (firsts.pop(None, None), {lane: first for lane, first in firsts.items() if lane is not None})
            for stream, firsts in found.items()
        }


def name_of(key: StreamKey) -> str:
    """How the books call a stream, whatever its epoch."""
    return f"{key.data}/{key.seed}"
