"""The records of a run's jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from fleet.coordination.job_record import JobRecord


class JobBook(dict[str, JobRecord]):
    """Records by name, in the order in which jobs came.

    It knows which of them could go on, so that asking for these costs nothing for those that are over or pause.

    Args:
        jobs: the first ones.
    """

    def __init__(self, jobs: Iterable[JobRecord]) -> None:
        super().__init__()
        self._places: dict[str, int] = {}
        self._waiting: set[str] = set()
        self.ahead: set[str] = set()
        """Names of those that train ahead of need."""
        for job in jobs:
            self[job.name] = job

    def __setitem__(self, name: str, job: JobRecord) -> None:
        super().__setitem__(name, job)
        self._places.setdefault(name, len(self._places))
        for names, holds in ((self._waiting, job.waits), (self.ahead, job.state.ahead)):
            if holds:
                names.add(name)
            else:
                names.discard(name)

    def __delitem__(self, name: str) -> NoReturn:
        raise TypeError("jobs stay in the books of a run")

    @property
    def unfinished(self) -> list[JobRecord]:
        """Those that could go on, or run."""
        return [self[name] for name in sorted(self._waiting, key=self._places.__getitem__)]
