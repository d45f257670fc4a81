"""What was found among a spec's jobs, so that a spec with one job more need not look at all of them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fleet.spec.job import Job


@dataclass(eq=False)
class FoundJobs:
    """Where jobs stand, and which of them have folds. All of these are equal: they say nothing that the jobs do not.

    Attributes:
        places: name -> where a job of this name was found last, maybe among the jobs of another spec.
        folded: the jobs among which those with folds were looked for, and these.
    """

    places: dict[str, int] = field(default_factory=dict)
    folded: tuple[Sequence[Job], tuple[Job, ...]] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FoundJobs)

    __hash__ = None  # type: ignore[assignment]

    def place(self, jobs: Sequence[Job], name: str) -> int | None:
        """Where the job of this name stands; None: there is none."""
        place = self._seen(jobs, name)
        if place is None:
            place = next((number for number, job in enumerate(jobs) if job.name == name), None)
            if place is not None:
                self.places[name] = place
        return place

    def with_folds(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        """Those of the jobs that hold out folds."""
        if self.folded is None or self.folded[0] is not jobs:
            self.folded = (jobs, tuple(job for job in jobs if job.folds is not None))
        return self.folded[1]

    def joined(self, jobs: Sequence[Job], more: Sequence[Job]) -> FoundJobs:
        """What is found among `more`, which are the jobs and one after them."""
        new = more[-1]
        if self._seen(jobs, new.name) is None:
            self.places[new.name] = len(jobs)
        known = self.with_folds(jobs)
        return FoundJobs(self.places, (more, known if new.folds is None else (*known, new)))

    def _seen(self, jobs: Sequence[Job], name: str) -> int | None:
        """Where the job of this name was found last, if it stands there among these, too."""
        place = self.places.get(name, len(jobs))
        return place if place < len(jobs) and jobs[place].name == name else None
