"""The section `search` as it stands in a file: what its trials share written out, and what is wrong with that."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from fleet.spec.conditions import checked
from fleet.spec.corners import corners
from fleet.spec.distributions import Distribution
from fleet.spec.expansion import laid_over, over_problems, with_varied_seeds
from fleet.spec.job import Job
from fleet.spec.key_rules import incomplete
from fleet.spec.name_templates import has_placeholder, may_be_filled, template_problems
from fleet.spec.origins import Origins
from fleet.spec.problem import ABSENT, Path, Problem
from fleet.spec.trial import NUMBER, trial_keys, trial_origin
from fleet.spec.validation import problems_of

_HERE: Path = ("search",)
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
    """What is wrong with a section that is written out, beside what its model knows.

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
    """What is wrong with the keys of one trial; `inside` has it as its only job."""
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
