"""What was found among a spec's jobs, so that nobody need look at all of them again, and jobs that are read late."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

from fleet.spec.data_keys import data_key
from fleet.spec.job import Job


@dataclass(frozen=True, eq=False)
class FoundJobs:
    """Where jobs stand, and what they read. All of these are equal: they say nothing that the jobs do not.

    Attributes:
        jobs: among which this was found.
        places: name -> where a job of this name was found last, maybe among the jobs of another spec.
        readers: data key -> the place of the first job that reads it.
        folded: the data keys of jobs that hold out folds.
    """

    jobs: Sequence[Job] = ()
    places: dict[str, int] = field(default_factory=dict)
    readers: Mapping[str, int] = field(default_factory=dict)
    folded: frozenset[str] = frozenset()

    @classmethod
    def among(cls, jobs: Sequence[Job]) -> FoundJobs:
        """Look at each of the jobs."""
        readers: dict[str, int] = {}
        for place, job in enumerate(jobs):
            readers.setdefault(data_key(job), place)
        folded = frozenset(data_key(job) for job in jobs if job.folds is not None)
        return cls(jobs, {job.name: place for place, job in enumerate(jobs)}, readers, folded)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FoundJobs)

    __hash__ = None  # type: ignore[assignment]

    def place(self, name: str) -> int | None:
        """Where the job of this name stands; None: there is none."""
        place = self._seen(name)
        if place is None:
            place = next((number for number, job in enumerate(self.jobs) if job.name == name), None)
            if place is not None:
                self.places[name] = place
        return place

    def joined(self, jobs: Sequence[Job]) -> FoundJobs:
        """What is found among `jobs`, which are these and one after them."""
        new, place = jobs[-1], len(jobs) - 1
        if self._seen(new.name) is None:
            self.places[new.name] = place
        key = data_key(new)
        readers = self.readers if key in self.readers else {**self.readers, key: place}
        return FoundJobs(jobs, self.places, readers, self.folded if new.folds is None else self.folded | {key})

    def among_changed(self, jobs: Sequence[Job]) -> FoundJobs:
        """What is found among `jobs`, which have the names and the data of these in their order."""
        return replace(self, jobs=jobs)

    def _seen(self, name: str) -> int | None:
        """Where the job of this name was found last, if it stands there among these, too."""
        place = self.places.get(name, len(self.jobs))
        return place if place < len(self.jobs) and self.jobs[place].name == name else None


class LazyJobs(Sequence[Job]):
    """Jobs that rank 0 has validated: each is read from its JSON when somebody first asks for it."""

    def __init__(self, jobs: Sequence[Job | str]) -> None:
        self._jobs = list(jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def __getitem__(self, place: int) -> Job: ...

    @overload
    def __getitem__(self, place: slice) -> LazyJobs: ...

    def __getitem__(self, place: int | slice) -> Job | LazyJobs:
        if isinstance(place, slice):
            return LazyJobs(self._jobs[place])
        job = self._jobs[place]
        if isinstance(job, str):
            job = self._jobs[place] = Job.model_validate(json.loads(job))
        return job

    def __add__(self, more: LazyJobs | tuple[Job, ...]) -> LazyJobs:
        return LazyJobs([*self._jobs, *(more._jobs if isinstance(more, LazyJobs) else more)])
