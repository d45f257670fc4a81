"""The spec of a run, as its directory tells it, and whether the code that it names is to be run."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleet.journal.run_requests import AddedJobs
from fleet.journal.whole_files import ENSEMBLE_NAME as ENSEMBLE_FILE
from fleet.journal.whole_files import EnsembleFile
from fleet.models.errors import ModelsError
from fleet.spec import EnsembleSpec, Job
from fleet.spec.problem import nearest

_MOST_NAMES = 10
_MOST_REFERENCES = 3
_ZOO = "trainers.zoo:"
_HARMLESS = frozenset({"preprocess:DrawnDigits"})


def recorded_spec(directory: Path) -> EnsembleSpec:
    """Read the spec of the run in a directory, with the jobs that were added to it.

    Raises:
        ModelsError: the folder holds no run.
        SpecError: what is written there is no spec any more.
    """
    known = EnsembleFile.read(directory)
    if known is None:
        text = f"{directory} holds no run that was started: there is no ensemble.json in it"
        raise ModelsError(f"{text}; name the --out of a `fleet run`")
    try:
        own = {job["name"] for job in known.spec["jobs"]}
        jobs = [*known.spec["jobs"], *(job for job in AddedJobs(directory).taken() if job["name"] not in own)]
        told, folder = {**known.spec, "jobs": jobs}, Path(known.folder)
    except (KeyError, TypeError, AttributeError) as error:
        text = f"{directory / ENSEMBLE_FILE} is damaged: no run writes it so ({type(error).__name__}: {error})"
        raise ModelsError(f"{text}; give `fleet run` its spec again") from error
    return EnsembleSpec.from_mapping(told, folder=folder)


def recorded_job(spec: EnsembleSpec, directory: Path, name: str) -> Job:
    """Return the job of this name.

    Raises:
        ModelsError: there is none; the text names the nearest.
    """
    names = [job.name for job in spec.jobs]
    if name in names:
        return spec.job(name)
    meant = nearest(name, names)
    ask = f"; did you mean {meant}?" if meant else f"; it has {', '.join(sorted(names)[:_MOST_NAMES])}"
    raise ModelsError(f"the run in {directory} has no job {name}{ask}")


def check_trusted(directory: Path, trust: bool) -> None:
    """Refuse to run code that another user can have chosen, unless the caller trusts it; nothing is imported here.

    A spec names code by `module:Name`, which may be anybody's: a file in the folder that the run directory tells, in
    the current one, or any installed function with any arguments. So it is another's where the run directory, its
    spec or a job that was added belongs to another user, or that folder, or a file or package in it that is named.
    Links are followed. What belongs to this user or to root is trusted; root, who runs with the rights of all, trusts
    root alone. A run whose spec names nothing but what fleet brings along is never refused.

    Args:
        trust: whether the caller has said that such code may run.

    Raises:
        ModelsError: whose code it is, what of it is named, and where it is looked for.
    """
    known = None if trust else EnsembleFile.read(directory)
    if known is None:
        return
    references = sorted({*references_in(known.spec), *references_in(AddedJobs(directory).taken())})
    if not references:
        return
    deciding = [directory, directory / ENSEMBLE_FILE, *sorted((directory / "added").rglob("*"))]
    for place in (*deciding, Path(known.folder), *_modules(references, [Path(known.folder), Path.cwd()])):
        with suppress(OSError):  # what is not there gives no code
            owner = place.stat().st_uid
            if owner not in (0, os.geteuid()):
                raise ModelsError(_whose_code(place, owner, references, known.folder))


def _whose_code(place: Path, owner: int, references: list[str], folder: str) -> str:
    try:
        user = pwd.getpwuid(owner).pw_name
    except KeyError:
        user = str(owner)
    more = len(references) - _MOST_REFERENCES
    named = ", ".join(references[:_MOST_REFERENCES]) + (f" and {more} more" if more > 0 else "")
    text = (
        f"{place} belongs to user {user}, and the run's spec names code ({named}), looked for in {folder}, that would"
    )
    return f"{text} run with your rights; read it, and then add --trust (in Python trust=True)"


def references_in(told: Any) -> Iterator[str]:
    """All texts in plain values by which modules could be imported, wherever they stand."""
    waiting = [told]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value
        elif isinstance(value, str) and _may_name_code(value):
            yield value


def _may_name_code(text: str) -> bool:
    module, colon, name = text.partition(":")
    own = text in _HARMLESS or (text.startswith(_ZOO) and name.isidentifier())  # with dots: another module's
    return bool(module and colon and name) and "/" not in module and not own


def _modules(references: list[str], folders: list[Path]) -> Iterator[Path]:
    """The files and packages that may be imported for references, in these folders."""
    for reference in references:
        words = reference.partition(":")[0].split(".")
        for folder in folders:
            for count in range(1, len(words) + 1):
                place = folder.joinpath(*words[:count])
                yield from (place, place / "__init__.py", place.with_name(f"{place.name}.py"))
