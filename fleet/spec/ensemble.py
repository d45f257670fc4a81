"""The whole spec as validated, frozen objects, and how it is read from a file, from values or from another process."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from pydantic import Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from fleet.spec.building import build, document_of
from fleet.spec.data import Data
from fleet.spec.document import Document, Origins, parse
from fleet.spec.job import Job, data_key
from fleet.spec.problem import ABSENT, Problem, SpecError, nearest
from fleet.spec.resources import Resources
from fleet.spec.search import SearchSpec
from fleet.spec.sections import Checkpoints, Determinism, Policy, Profile, Rehearse, profile_files
from fleet.spec.values import Name, Section, Seed, refusal
from preprocess.files.reading import NotAFile, TooLarge, read_bytes


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
        """Return where the job of this name stands; None: there is none."""
        place = self._seen(name)
        if place is None:
            place = next((number for number, job in enumerate(self.jobs) if job.name == name), None)
            if place is not None:
                self.places[name] = place
        return place

    def joined(self, jobs: Sequence[Job]) -> FoundJobs:
        """Return what is found among `jobs`, which are these and one after them."""
        new, place = jobs[-1], len(jobs) - 1
        if self._seen(new.name) is None:
            self.places[new.name] = place
        key = data_key(new)
        readers = self.readers if key in self.readers else {**self.readers, key: place}
        return FoundJobs(jobs, self.places, readers, self.folded if new.folds is None else self.folded | {key})

    def among_changed(self, jobs: Sequence[Job]) -> FoundJobs:
        """Return what is found among `jobs`, which have the names and the data of these in their order."""
        return replace(self, jobs=jobs)

    def _seen(self, name: str) -> int | None:
        """Return where the job of this name was found last, if it stands there among these, too."""
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
                rule = f"jobs[{position}] stands for {job.folds} jobs, one for each fold"
                raise refusal(rule, "use from_mapping, which writes them out")
        return self


LARGEST_FILE = 16 * 2**20  # bytes


def load(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), folder: str | os.PathLike[str] | None = None
) -> EnsembleSpec:
    """Read a spec.

    Args:
        path: a YAML file.
        overrides: ``path=value`` texts, each changing one value before it is looked at.
        folder: where its modules and relative paths are looked for; None: where the file is.

    Raises:
        SpecError: with everything that is wrong; no other error comes out, whatever the file holds.
    """
    name = os.fspath(path)
    place = pathlib.Path(name).parent if folder is None else pathlib.Path(folder)
    return EnsembleSpec.from_document(parse(_text(name), name), overrides, place.absolute(), name)


def loads(text: str, overrides: Sequence[str] = (), folder: str | os.PathLike[str] = ".") -> EnsembleSpec:
    """Read a spec from YAML text; see ``load``."""
    return EnsembleSpec.from_document(parse(text), overrides, pathlib.Path(folder), None)


def load_jobs(
    path: str | os.PathLike[str], ensemble: Mapping[str, Any], folder: str | os.PathLike[str]
) -> EnsembleSpec:
    """Read jobs that are to join an ensemble: one job, a list of them, or a mapping of ``jobs`` and ``defaults``.

    Args:
        path: a YAML file.
        ensemble: the values of the ensemble's spec, as ``EnsembleSpec.to_mapping`` gives them.
        folder: where its modules and relative paths are looked for.

    Returns:
        the ensemble's name, seed, data and determinism, with these jobs in place of its own.

    Raises:
        SpecError: with everything that is wrong; no other error comes out, whatever the file holds.
    """
    name = os.fspath(path)
    own = _of_jobs(parse(_text(name), name), name)
    values = {key: ensemble[key] for key in ("name", "seed", "data", "determinism") if key in ensemble}
    return EnsembleSpec.from_document(Document({**values, **own.value}, own.places), (), pathlib.Path(folder), name)


def _of_jobs(document: Document, name: str) -> Document:
    """The document as a mapping of ``jobs`` and ``defaults``."""
    value, places = document.value, document.places
    if isinstance(value, dict) and "jobs" in value:
        foreign = [key for key in value if key not in ("jobs", "defaults")]
        if foreign:
            rule = "jobs that join a run share its other sections"
            mend = "keep jobs and defaults alone"
            line = places[(foreign[0],)].line
            raise SpecError([Problem(str(foreign[0]), ABSENT, rule, mend=mend, line=line)], name)
        return document
    if isinstance(value, list):
        return Document({"jobs": value}, {("jobs", *path): place for path, place in places.items()})
    return Document({"jobs": [value]}, {("jobs", 0, *path): place for path, place in places.items()})


def _text(name: str) -> str:
    try:
        return read_bytes(name, LARGEST_FILE).decode("utf-8-sig")
    except TooLarge as error:
        rule = f"the file {error.strerror}"
        raise SpecError([Problem("", ABSENT, rule, mend="use grids, samples and defaults")], name) from None
    except (NotAFile, FileNotFoundError, NotADirectoryError):
        raise SpecError([_not_a_file(pathlib.Path(name))], name) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        rule = f"the file is not UTF-8 text: byte {error.object[error.start]:#04x} at {error.start}"
        raise SpecError([Problem("", ABSENT, rule, mend="save it as UTF-8", line=line)], name) from None
    except (OSError, ValueError) as error:
        rule = f"the file cannot be read: {getattr(error, 'strerror', None) or error}"
        raise SpecError([Problem("", ABSENT, rule, mend="check its permissions and its name")], name) from None


def _not_a_file(file: pathlib.Path) -> Problem:
    if file.is_dir():
        inside = sorted(child.name for child in file.iterdir() if child.suffix in (".yaml", ".yml"))
        suggestion = str(file / inside[0]) if inside else None
        return Problem("", ABSENT, "this is a directory; a spec is a YAML file", suggestion, "name the file in it")
    if file.exists():
        return Problem("", ABSENT, "this is not a regular file", mend="copy the spec into a file")
    folder = file.parent
    beside = [child.name for child in folder.iterdir()] if folder.is_dir() else []
    close = nearest(file.name, beside, likeness=0.75)
    rule = "there is no such file" if folder.is_dir() else f"there is no such file: the folder {folder} does not exist"
    return Problem("", ABSENT, rule, str(folder / close) if close else None, "check the path")
