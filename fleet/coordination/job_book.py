"""The records of a run's jobs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import islice
from typing import NoReturn

from fleet.coordination.job_record import JobRecord
from fleet.scheduling.easyscale.kind_curves import KindCurves
from fleet.scheduling.model.rates import expected_efficiency

_RECENT = 16
"""So many jobs tell what to expect of another one; a search has very many."""


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
        self.news = 0
        """Grows as a job comes, or one begins, ends or pauses, finishes an epoch, is saved, or may train further."""
        self.gone = 0
        """Grows as one that could go on can no more, or pauses."""
        self._efficiencies: list[float] = []  # ascending
        self._efficiency: dict[str, float] = {}
        for job in jobs:
            self[job.name] = job

    def __setitem__(self, name: str, job: JobRecord) -> None:
        before = self.get(name)
        self.news += before is None or _standing(before) != _standing(job)
        super().__setitem__(name, job)
        self._places.setdefault(name, len(self._places))
        self.gone += name in self._waiting and not job.waits
        for names, holds in ((self._waiting, job.waits), (self.ahead, job.state.ahead)):
            if holds:
                names.add(name)
            else:
                names.discard(name)
        self._note_efficiency(name, job)

    def __delitem__(self, name: str) -> NoReturn:
        raise TypeError("jobs stay in the books of a run")

    @property
    def unfinished(self) -> list[JobRecord]:
        """Those that could go on, or run."""
        return [self[name] for name in sorted(self._waiting, key=self._places.__getitem__)]

    @property
    def efficiency(self) -> float:
        """See `expected_efficiency`; jobs whose rates are known by kind of device do not count."""
        return expected_efficiency(self._efficiencies)

    def recent(self, kind: str) -> list[JobRecord]:
        """The jobs that came last of those whose rates are known on a kind of device, and not guessed."""
        return list(islice((job for job in reversed(self.values()) if kind in job.curves and not job.guessed), _RECENT))

    def recent_kinds(self) -> list[KindCurves]:
        """The rates by kind of the jobs that came last of those that have such."""
        return list(islice((job.by_kind for job in reversed(self.values()) if job.by_kind is not None), _RECENT))

    def _note_efficiency(self, name: str, job: JobRecord) -> None:
        before = self._efficiency.pop(name, None)
        if before is not None:
            del self._efficiencies[bisect_left(self._efficiencies, before)]
        now = None if job.by_kind is not None or job.curve is None else job.curve.efficiency
        if now is not None:
            self._efficiency[name] = now
            insort(self._efficiencies, now)


def _standing(job: JobRecord) -> tuple[object, ...]:
    return job.status, job.epoch, job.until, job.checkpoint, job.state.ahead
