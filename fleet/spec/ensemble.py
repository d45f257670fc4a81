"""The whole spec, as validated and frozen objects."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from fleet.spec.building import build, document_of
from fleet.spec.checkpoints import Checkpoints
from fleet.spec.document import Document
from fleet.spec.found_jobs import FoundJobs, LazyJobs
from fleet.spec.job import Job
from fleet.spec.origins import Origins
from fleet.spec.profile_files import profile_files
from fleet.spec.resources import Resources
from fleet.spec.search import SearchSpec
from fleet.spec.sections import Data, Determinism, Policy, Profile, Rehearse
from fleet.spec.values import Name, Section, Seed


class EnsembleSpec(Section):
    """What one run trains, and how; every job written out.

    Built by ``fleet.spec.load`` from a file, by ``from_mapping`` from plain values (both raise SpecError with all
    problems), or directly from the objects of its sections (pydantic's ValidationError).
    """

    name: Name = Field(
        description="Name of the ensemble; without --out the run directory is runs/NAME.", examples=["digits"]
    )
    seed: Seed = Field(
        default=0,
        description="Seed of the jobs and samples that have no seed of their own, and of policies that draw.",
        examples=[0],
    )
    data: Mapping[Name, Data] = Field(
        default_factory=dict, description="The data sets, by the name that jobs use.", examples=[{"digits": "..."}]
    )
    jobs: tuple[Job, ...] = Field(
        default=(),
        description="The jobs to train: a list of jobs, grids and samples. Needed unless there is a `search`.",
        examples=[[{"name": "mlp-1"}]],
    )
    search: SearchSpec | None = Field(
        default=None,
        description="A search for good networks, beside the jobs; null: none.",
        examples=[{"name": "cnn-{trial}"}],
    )
    resources: Resources = Field(
        default_factory=Resources, description="What the run may use of the machine.", examples=[{"trainers": 3}]
    )
    determinism: Determinism = Field(
        default_factory=Determinism, description="On which changes of devices results do not depend.", examples=["D2"]
    )
    policy: Policy = Field(
        default_factory=Policy, description="Who gets which devices, and when.", examples=[{"name": "flotilla"}]
    )
    checkpoints: Checkpoints = Field(
        default_factory=Checkpoints,
        description="How often a job writes a checkpoint, and how many are kept.",
        examples=[{"every": 1, "keep": 2}],
    )
    profile: Profile = Field(
        default_factory=Profile, description="How training rates are measured.", examples=[{"batches": 48, "timed": 20}]
    )
    rehearse: Rehearse | None = Field(
        default=None,
        description="Rates for a rehearsal, which waits instead of computing; null: none given.",
        examples=[{"time_scale": 0.1}],
    )
    ensemble: bool = Field(
        default=True,
        description="At the end of the run its networks predict the held-out samples together, and their figures stand "
        "beside those of each, if that takes 2 % of the run's time at most (at least 10 s, at most 20 s).",
        examples=[False],
    )
    _origins: Origins = PrivateAttr(default_factory=Origins)
    _found: FoundJobs = PrivateAttr(default_factory=FoundJobs)

    @classmethod
    def from_mapping(
        cls, mapping: Mapping[str, Any], overrides: Sequence[str] = (), folder: str | pathlib.Path = "."
    ) -> EnsembleSpec:
        """The spec that a mapping of plain values says, with the keys of the file (defaults, grids and samples too).

        Args:
            mapping: the values; they are copied.
            overrides: ``path=value`` texts, as for ``--set``.
            folder: where its modules and relative paths are looked for.

        Raises:
            SpecError: with everything that is wrong.
        """
        return cls.from_document(document_of(mapping), overrides, pathlib.Path(folder), None)

    @classmethod
    def from_document(
        cls, document: Document, overrides: Sequence[str], folder: pathlib.Path, file: str | None
    ) -> EnsembleSpec:
        """The spec that a document says, after its overrides; SpecError with everything that is wrong."""
        spec, origins = build(cls, document, overrides, folder, file)
        return spec.written_at(origins)

    def to_mapping(self) -> dict[str, Any]:
        """The spec as JSON-able values; ``from_mapping`` gives an equal spec back."""
        return self.model_dump(mode="json")

    def with_jobs(self, jobs: tuple[Job, ...]) -> EnsembleSpec:
        """Return the spec with these jobs in place of its own; their names are all different."""
        return self.model_copy(update={"jobs": jobs})

    def with_job(self, job: Job) -> EnsembleSpec:
        """Return the spec with one job more, whose name none of its jobs has."""
        spec = self.model_copy(update={"jobs": self.jobs + (job,)})
        spec._found = self.found.joined(spec.jobs)
        return spec

    def with_changed_job(self, job: Job) -> EnsembleSpec:
        """Return the spec with this job in place of the one of its name, which reads the same data."""
        place = self.found.place(job.name)
        assert place is not None, f"no job is called {job.name!r}"
        spec = self.model_copy(update={"jobs": self.jobs[:place] + (job,) + self.jobs[place + 1 :]})
        spec._found = self.found.among_changed(spec.jobs)
        return spec

    def job(self, name: str) -> Job:
        """The job of this name.

        Raises:
            KeyError: there is none.
        """
        place = self.found.place(name)
        if place is None:
            raise KeyError(f"no job is called {name!r}")
        return self.jobs[place]

    @property
    def found(self) -> FoundJobs:
        """What is known of its jobs without a look at each."""
        if self._found.jobs is not self.jobs:
            self._found = FoundJobs.among(self.jobs)
        return self._found

    def to_lines(self) -> tuple[dict[str, Any], str]:
        """The spec for other processes: JSON-able values without the jobs, and a line of JSON for each job."""
        head = self.model_dump(mode="json", exclude={"jobs"})
        found = {"places": self.found.places, "readers": self.found.readers, "folded": sorted(self.found.folded)}
        return {"spec": head, "found": found}, "\n".join(json.dumps(job.model_dump(mode="json")) for job in self.jobs)

    @classmethod
    def from_lines(cls, told: Mapping[str, Any], lines: str, folder: pathlib.Path) -> EnsembleSpec:
        """The spec that `to_lines` gave, in another process, which reads a job when it first asks for it.

        Args:
            folder: where its modules and relative paths are looked for.
        """
        jobs, found = LazyJobs(lines.split("\n") if lines else []), told["found"]
        spec = cls.model_validate({**told["spec"], "jobs": tuple(jobs[:1])}).written_at(Origins(folder=folder))
        spec = spec.model_copy(update={"jobs": jobs})
        spec._found = FoundJobs(jobs, found["places"], found["readers"], frozenset(found["folded"]))
        return spec

    @property
    def origins(self) -> Origins:
        """Where its values were written."""
        return self._origins

    @property
    def folder(self) -> pathlib.Path:
        """Where its modules and relative paths are looked for."""
        return self._origins.folder

    def file(self, path: str) -> pathlib.Path:
        """The path of a profile: beside the spec if it or parts of it are there, otherwise from the current folder."""
        beside = self.folder / path
        return beside if profile_files(beside) else pathlib.Path(path)

    def written_at(self, origins: Origins) -> EnsembleSpec:
        """Return the spec with the places of its values."""
        spec = self.model_copy()
        spec._origins = origins
        return spec

    @model_validator(mode="after")
    def _something_to_train(self) -> EnsembleSpec:
        if not self.jobs and self.search is None:
            raise PydanticCustomError(
                "nothing_to_train", "a spec without jobs and without a search", {"mend": "give it jobs"}
            )
        return self

    @model_validator(mode="after")
    def _unique_names(self) -> EnsembleSpec:
        first: dict[str, int] = {}
        for position, job in enumerate(self.jobs):
            if first.setdefault(job.name, position) != position:
                raise PydanticCustomError(
                    "duplicate_job",
                    "jobs[{first}] and jobs[{second}] are both called {name}",
                    {"first": first[job.name], "second": position, "name": job.name},
                )
        return self

    @model_validator(mode="after")
    def _folds_written_out(self) -> EnsembleSpec:
        for position, job in enumerate(self.jobs):
            if job.folds is not None and job.fold is None:
                raise PydanticCustomError(
                    "folds_together",
                    "jobs[{position}] stands for {folds} jobs, one for each fold",
                    {"position": position, "folds": job.folds, "mend": "use from_mapping, which writes them out"},
                )
        return self
