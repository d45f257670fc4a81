"""Plain values -> a spec, with all structural problems in one report; a search's section too."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from fleet.spec.distributions import Distribution, checked, corners
from fleet.spec.document import DEEPEST, Document, Origins, Override, apply, apply_to_job
from fleet.spec.expansion import (
    NUMBER,
    Expansion,
    expand,
    has_placeholder,
    laid_over,
    may_be_filled,
    merged,
    over_problems,
    template_problems,
    trial_keys,
    trial_origin,
    with_varied_seeds,
)
from fleet.spec.job import Job, incomplete
from fleet.spec.problem import ABSENT, KeyPath, Problem, SpecError, shown, written
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


def _copied(value: Any, path: KeyPath, problems: list[Problem]) -> Any:
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
    later, problems = apply(document, overrides)
    values = document.value
    origins = Origins(file, folder, document.places)
    defaults = values.get("defaults")
    entries = values.get("jobs")
    expansion = Expansion()
    if isinstance(entries, list):
        expansion = expand(entries, _usable(defaults), _seed_of(values), origins)
    problems += expansion.problems
    origins = dataclasses.replace(origins, jobs=tuple(expansion.origins))
    origins = _apply_later(later, expansion, origins, problems)
    problems += _defaults_problems(defaults, origins)
    for base, own in expansion.unfinished:
        problems += _partial_problems(base, own, origins)
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


def _nothing_problems(values: Mapping[str, Any], origins: Origins) -> Iterator[Problem]:
    """Yield what is wrong with a spec of jobs alone that has none."""
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


def _partial_problems(base: KeyPath, values: Mapping[str, Any], origins: Origins) -> Iterator[Problem]:
    """The problems of some keys of a job."""
    try:
        Job.model_validate(merged({"name": "name"}, values))
    except ValidationError as error:
        yield from problems_of(error, Job, base, origins, partial=True)


def _job_problems(jobs: Sequence[Mapping[str, Any]], origins: Origins) -> Iterator[Problem]:
    """Yield what concerns several keys of a job, or several jobs."""
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


_HERE: KeyPath = ("search",)
_OVER = TypeAdapter(Mapping[str, Distribution])
_NOT_OF_TRIALS = {
    "name": "trials are named by the template `search.name`",
    "folds": "a trial is one network; it may name one `fold`",
    "batch": "a batch that the policy changes would let the search depend on devices",
    "batch_range": "a batch that the policy chooses would let the search depend on devices",
    "arrival": "a trial begins when the search wants it",
}
_CHOSEN = {"virtual_workers": "auto", "batch_size": "largest"}


def written_out(search: Any, defaults: Mapping[str, Any], seed: int) -> Any:
    """The section with the keys that its job has from `defaults` and from the rungs; what is no mapping stays."""
    if not isinstance(search, Mapping) or not isinstance(search.get("job"), Mapping):
        return search
    job = laid_over({"seed": seed, **defaults}, search["job"])
    stopping = search.get("stopping")
    rungs = stopping.get("rungs") if isinstance(stopping, Mapping) else None
    if job.get("stop") is None and isinstance(rungs, list) and rungs:
        job["stop"] = {"epochs": rungs[-1]}
    return {**search, "job": job}


def form_problems(search: Any, names: Sequence[str], origins: Origins) -> Iterator[Problem]:
    """Yield what is wrong with a section that is written out, beside what its model knows.

    Args:
        names: of the jobs beside it.
    """
    if not isinstance(search, Mapping) or not isinstance(search.get("job"), Mapping):
        return
    job, over = search["job"], search.get("over")
    paths = [path for path in over if isinstance(path, str)] if isinstance(over, Mapping) else []
    inside = dataclasses.replace(origins, jobs=(trial_origin(paths),))
    yield from _foreign_problems(job, inside)
    yield from _rung_problems(search, job, inside)
    found = list(_name_problems(search.get("name"), paths, names, origins))
    found += over_problems(paths, _HERE, with_varied_seeds(job, paths), origins)
    yield from found
    distributions = None if found else _valid(over)
    if distributions is None or "name" not in search:
        yield from _trial_problems({"name": "name", **job}, inside, partial=True)
        return
    for values in corners(distributions):
        keys = trial_keys(search["name"], {key: job[key] for key in job if key != "name"}, 0, values)
        yield from _trial_problems(keys, inside)


def _valid(over: Any) -> Mapping[str, Distribution] | None:
    """The distributions; None where the section's model finds problems with them."""
    try:
        return checked(_OVER.validate_python(over)) or None
    except (ValidationError, PydanticCustomError):
        return None


def _trial_problems(keys: Mapping[str, Any], inside: Origins, partial: bool = False) -> Iterator[Problem]:
    """Yield what is wrong with the keys of one trial; `inside` has it as its only job."""
    try:
        Job.model_validate(keys)
    except ValidationError as error:
        yield from problems_of(error, Job, ("jobs", 0), inside, partial)
    for key, rule, mend in () if partial else incomplete(keys):
        value = keys.get(key)
        yield inside.problem(("jobs", 0, key), ABSENT if value is None else value, rule, mend=mend)


def _name_problems(name: Any, paths: Sequence[str], names: Sequence[str], origins: Origins) -> Iterator[Problem]:
    if not isinstance(name, str) or not name:
        return
    at = (*_HERE, "name")
    found = list(template_problems(name, paths, at, origins, NUMBER))
    yield from found
    if not found and not has_placeholder(name, NUMBER):
        suggestion = f"{name}-{{{NUMBER}}}"
        rule = f"the name has no {{{NUMBER}}}, so that trials would share one"
        yield origins.problem(at, name, rule, suggestion, f"call them {suggestion}")
    taken = next((other for other in names if not found and may_be_filled(name, other)), None)
    if taken is not None:
        rule = f"the job {taken!r} has a name that a trial may have, too"
        yield origins.problem(at, name, rule, f"trial-{name}", "call the trials otherwise")


def _foreign_problems(job: Mapping[str, Any], inside: Origins) -> Iterator[Problem]:
    for key, rule in _NOT_OF_TRIALS.items():
        if job.get(key) and (key != "folds" or job.get("fold") is None):
            yield inside.problem(("jobs", 0, key), job[key], rule, mend=f"take {key} away")
    for key, word in _CHOSEN.items():
        if job.get(key) == word or (key == "batch_size" and isinstance(job.get(key), Mapping)):
            rule = f"{word} goes by the devices that there are, and a search must not depend on them"
            yield inside.problem(("jobs", 0, key), job[key], rule, mend=f"give {key} a number")


def _rung_problems(search: Mapping[str, Any], job: Mapping[str, Any], inside: Origins) -> Iterator[Problem]:
    """Rungs that are not those of the trials' epochs."""
    stopping, stop = search.get("stopping"), job.get("stop")
    rungs = stopping.get("rungs") if isinstance(stopping, Mapping) else None
    epochs = stop.get("epochs") if isinstance(stop, Mapping) else None
    if not isinstance(rungs, list) or not rungs or type(epochs) is not int:
        return
    if all(type(rung) is int for rung in rungs) and rungs == sorted(rungs) and rungs[-1] != epochs:
        rule = f"the last rung is where a trial is done, and stop.epochs of its job is {epochs}"
        right = [rung for rung in rungs if rung < epochs] + [epochs]
        mend = f"end the rungs with {epochs}, or set stop.epochs to {rungs[-1]}"
        yield inside.problem((*_HERE, "stopping", "rungs"), rungs, rule, str(right), mend)
