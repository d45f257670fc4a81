"""Which epochs of a stream are read again, by networks that do not read them now."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fleet.coordination.ledger import Ledger
from preprocess.samples.stream import StreamKey


class AwaitedEpochs:
    """Tells from the run's books which epochs come again.

    Args:
        ledger: knows where each job stands.
        searches: trials may come, which begin at the first epoch.
    """

    def __init__(self, ledger: Ledger, searches: bool) -> None:
        self._ledger, self._searches = ledger, searches

    def take_gone(self) -> set[str]:
        """The streams of which a job will read no more, for now or for good, since the last call."""
        return self._ledger.jobs.take_gone()

    def first(self, key: StreamKey, jobs: Collection[str]) -> int | None:
        """The first epoch of a stream that others than these jobs have yet to read; None: no other job has."""
        stream, book = name_of(key), self._ledger.jobs
        if self._searches and book.sharing[stream] > sum(book[job].stream == stream for job in jobs):
            return 0
        return book.first_awaited(stream, jobs)

    def of(self, stream: str, lanes: Mapping[int, Collection[str]]) -> tuple[int | None, dict[int, int]]:
        """What is still to be read of a stream, where no trials come: by jobs without a lane, and by lane.

        Args:
            lanes: its open ones, each with the jobs that read it.
        """
        book = self._ledger.jobs
        reading = {lane: [book[job].epoch for job in jobs if book[job].waits] for lane, jobs in lanes.items()}
        waiting = book.first_awaited(stream, [job for jobs in lanes.values() for job in jobs])
        return waiting, {lane: min(epochs) for lane, epochs in reading.items() if epochs}


def name_of(key: StreamKey) -> str:
    """How the books call a stream, whatever its epoch."""
    return f"{key.data}/{key.seed}"
