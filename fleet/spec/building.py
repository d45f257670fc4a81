"""Plain values -> a spec, with all structural problems in one report."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from fleet.spec.document import DEEPEST, Document
from fleet.spec.expansion import Expansion, expand, merged
from fleet.spec.job import Job
from fleet.spec.key_rules import incomplete
from fleet.spec.origins import Origins
from fleet.spec.overrides import Override, apply, apply_to_job
from fleet.spec.problem import ABSENT, Path, Problem, SpecError, shown, written
from fleet.spec.search_form import form_problems, written_out
from fleet.spec.validation import problems_of
from fleet.spec.values import LARGEST_SEED, Section

S = TypeVar("S", bound=Section)

_FOREMOST = ("name", "data", "jobs")


def document_of(mapping: Any) -> Document:
    """Plain values as a document; they are copied. SpecError for keys that are no text, and for too many levels."""
    problems: list[Problem] = []
    document = Document(_copied(mapping, (), problems), {})
    if problems:
        raise SpecError(problems)
    return document


def _copied(value: Any, path: Path, problems: list[Problem]) -> Any:
    """The value with dicts and lists of its own (tuples become lists)."""
    if len(path) >= DEEPEST:
        problems.append(Problem(written(path[:3]), ABSENT, f"nested too deeply: at most {DEEPEST} levels"))
        return None
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                rule = f"a key must be text, but {shown(key)} is not"
                problems.append(Problem(written(path), ABSENT, rule, mend="use text as the key"))
                return None
        return {key: _copied(child, path + (key,), problems) for key, child in value.items() if len(problems) < 8}
    if isinstance(value, (list, tuple)):
        return [_copied(child, path + (index,), problems) for index, child in enumerate(value) if len(problems) < 8]
    return value


def build(
    kind: type[S], document: Document, overrides: Sequence[str], folder: pathlib.Path, file: str | None
) -> tuple[S, Origins]:
    """The spec of this kind that a document says, after its overrides, and where its values were written.

    Raises:
        SpecError: with everything that is wrong with its form, in all sections and jobs.
    """
    if not isinstance(document.value, dict):
        rule = f"a spec is a mapping (key: value lines) with {', '.join(_FOREMOST)}, not {_kind(document.value)}"
        raise SpecError(
            [Problem("", ABSENT, rule, mend="begin with `name: ...` at the left margin", line=1 if file else None)],
            file,
        )
    applied = apply(document, overrides)
    values = document.value
    origins = Origins(file, folder, document.places)
    problems = applied.problems
    defaults = values.get("defaults")
    expansion = _expanded(values, defaults, origins)
    problems += expansion.problems
    origins = dataclasses.replace(origins, jobs=tuple(expansion.origins))
    origins = _apply_later(applied.later, expansion, origins, problems)
    problems += _defaults_problems(defaults, origins)
    problems += _unfinished_problems(expansion, origins)
    problems += _job_problems(expansion.jobs, origins)
    sections = {key: value for key, value in values.items() if key != "defaults"}
    if values.get("search") is None:
        problems += _nothing_problems(values, origins)
    else:
        sections["search"] = written_out(values["search"], _usable(defaults), _seed_of(values))
        # Those of a text alone: among the jobs of a run that goes on are trials, by right.
        names = [str(job.get("name")) for job in expansion.jobs if document.places]
        problems += form_problems(sections["search"], names, origins)
    if isinstance(values.get("jobs"), list) and (expansion.jobs or not expansion.problems):
        sections["jobs"] = expansion.jobs
    elif expansion.problems:
        sections["jobs"] = [
            {"name": "placeholder", "task": "none:None", "stop": {"epochs": 1}}
        ]  # its problems are known already
    try:
        spec = kind.model_validate(sections)
    except ValidationError as error:
        problems += problems_of(error, kind, (), origins, also=("defaults",))
    if problems:
        raise SpecError(problems, file)
    return spec, origins


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return "a list" if isinstance(value, list) else f"the single value {shown(value, 40)}"


def _expanded(values: Mapping[str, Any], defaults: Any, origins: Origins) -> Expansion:
    entries = values.get("jobs")
    if not isinstance(entries, list):
        return Expansion()
    return expand(entries, _usable(defaults), _seed_of(values), origins)


def _nothing_problems(values: Mapping[str, Any], origins: Origins) -> Iterator[Problem]:
    """What is wrong with a spec of jobs alone that has none."""
    if "jobs" not in values:
        mend = "add `jobs:` with a list of jobs, or `search:`"
        yield origins.problem(("jobs",), ABSENT, "required key jobs is missing", mend=mend)
    elif values["jobs"] == []:
        rule = "must have at least 1 element, and has 0"
        yield origins.problem(("jobs",), [], rule, mend="give it a job, or add `search:`")


def _usable(defaults: Any) -> Mapping[str, Any]:
    return defaults if isinstance(defaults, Mapping) else {}


def _seed_of(values: Mapping[str, Any]) -> int:
    seed = values.get("seed", 0)
    return seed if type(seed) is int and 0 <= seed <= LARGEST_SEED else 0


def _apply_later(later: list[Override], expansion: Expansion, origins: Origins, problems: list[Problem]) -> Origins:
    """Apply the overrides of jobs that grids and samples made."""
    made = list(origins.jobs)
    for override in later:
        outcome = apply_to_job(expansion.jobs, override)
        if isinstance(outcome, Problem):
            problems.append(outcome)
            continue
        index, path = outcome
        noted = {**made[index].overrides, path: override.origin}
        made[index] = dataclasses.replace(made[index], overrides=noted)
    return dataclasses.replace(origins, jobs=tuple(made))


def _defaults_problems(defaults: Any, origins: Origins) -> Iterator[Problem]:
    if defaults is None:
        return
    if not isinstance(defaults, Mapping):
        yield origins.problem(
            ("defaults",), defaults, "must be a mapping (key: value lines)", mend="write keys of a job below it"
        )
        return
    if "name" in defaults:
        yield origins.problem(
            ("defaults", "name"), defaults["name"], "each job has a name of its own", mend="take it away"
        )
    yield from _partial_problems(
        ("defaults",), {key: value for key, value in defaults.items() if key != "name"}, origins
    )


def _unfinished_problems(expansion: Expansion, origins: Origins) -> Iterator[Problem]:
    for base, own in expansion.unfinished:
        yield from _partial_problems(base, own, origins)


def _partial_problems(base: Path, values: Mapping[str, Any], origins: Origins) -> Iterator[Problem]:
    """The problems of some keys of a job."""
    try:
        Job.model_validate(merged({"name": "name"}, values))
    except ValidationError as error:
        yield from problems_of(error, Job, base, origins, partial=True)


def _job_problems(jobs: Sequence[Mapping[str, Any]], origins: Origins) -> Iterator[Problem]:
    """What concerns several keys of a job, or several jobs."""
    first: dict[Any, int] = {}
    names = {str(job.get("name")) for job in jobs}
    for position, job in enumerate(jobs):
        name = job.get("name")
        if isinstance(name, str) and first.setdefault(name, position) != position:
            yield _duplicate(name, first[name], position, names, origins)
        for key, rule, mend in incomplete(job):
            value = job.get(key)
            yield origins.problem(("jobs", position, key), ABSENT if value is None else value, rule, mend=mend)


def _duplicate(name: str, first: int, second: int, taken: set[str], origins: Origins) -> Problem:
    (here, place), (there, other) = (origins.locate(("jobs", position, "name")) for position in (second, first))
    line = f" (line {other.line})" if other.line is not None else ""
    rule = f"the name {name!r} is taken: {written(there)}{line} gives it too"
    if here == there:
        mend = "use {index} or the varied keys in the template of the names"
        return Problem(
            written(here),
            name,
            f"the template gives the name {name!r} twice",
            "{index}",
            mend,
            place.line,
            place.column,
        )
    free = next(f"{name}-{number}" for number in range(2, len(taken) + 3) if f"{name}-{number}" not in taken)
    return origins.problem(("jobs", second, "name"), name, rule, free, f"call one of them {free}")
