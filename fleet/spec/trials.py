"""The job of a trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from fleet.spec.directions import search_direction_problems
from fleet.spec.distributions import corners, set_paths
from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.expansion import trial_keys, trial_origin
from fleet.spec.job import Job, data_key
from fleet.spec.problem import KeyPath, Problem, SpecError, nearest
from fleet.spec.search import OPERATIONS, SearchSpec
from fleet.spec.validation import problems_of


def trial_job(spec: EnsembleSpec, trial: int, values: Mapping[str, Any]) -> Job:
    """The job that a trial of the spec's search is.

    Args:
        spec: one with a search.
        trial: its number, from 0.
        values: dotted path -> its value; the paths are those of `search.over`.

    Raises:
        ValueError: the spec has no search, or the values are of other paths.
        SpecError: the values make no valid job: with all that is wrong.
    """
    search = spec.search
    if search is None:
        raise ValueError(f"the spec {spec.name} has no search, and so no trials")
    wanted = set_paths(search.over, values)
    if values.keys() != wanted:
        raise ValueError(f"trial {trial} has values for {sorted(values)}, and the search varies {sorted(wanted)}")
    try:
        return Job.model_validate(trial_keys(search.name, search.job, trial, values))
    except ValidationError as error:
        inside = dataclasses.replace(spec.origins, jobs=(trial_origin(search.over),))
        raise SpecError(problems_of(error, Job, ("jobs", 0), inside), inside.file) from None


def corner_jobs(spec: EnsembleSpec) -> list[Job]:
    """Trials with the ends of what a search's values can be, as far as these make jobs; none without a search.

    Each has a name of its own, though the search would call some of them alike.
    """
    if spec.search is None:
        return []
    found: list[Job] = []
    names = {job.name for job in spec.jobs}
    for values in corners(spec.search.over):
        try:
            job = trial_job(spec, 0, values)
        except SpecError:
            continue  # a trial with such values fails
        if job.name in names:
            job = job.model_copy(update={"name": f"{job.name} ({len(found)})"})
        names.add(job.name)
        found.append(job)
    return found


def has_folds(spec: EnsembleSpec, key: str) -> bool:
    """Whether jobs divide a data set into folds; all its training samples then are held-out ones, too."""
    search = spec.search
    varied = search is not None and (search.job.get("folds") is not None or "folds" in search.over)
    trials = corner_jobs(spec) if varied else ()
    return key in spec.found.folded or any(job.folds is not None and data_key(job) == key for job in trials)


def with_likely_trials(spec: EnsembleSpec) -> EnsembleSpec:
    """The spec with trials at the ends of its search's ranges as further jobs, so that they are looked at as jobs are.

    Their names are of no meaning.
    """
    search = spec.search
    if search is None:
        return spec
    trials = [job for values in corners(search.over) if (job := _trial(search, values)) is not None]
    origins = dataclasses.replace(spec.origins, jobs=(*spec.origins.jobs, *[trial_origin(search.over)] * len(trials)))
    return spec.with_jobs((*spec.jobs, *trials)).written_at(origins)


def _trial(search: SearchSpec, values: dict[str, object]) -> Job | None:
    """A trial with these values; None if they are no valid job, as in a spec that was not read from values."""
    try:
        return Job.model_validate(trial_keys(search.name, search.job, 0, values))
    except ValidationError:
        return None


def search_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    """What is wrong with a search beside its trials."""
    search = spec.search
    if search is None:
        return
    yield from _metric_problems(spec, search)
    if isinstance(search.costs, str) and search.costs != OPERATIONS:
        yield from _reference_problems(spec, ("search", "costs"), search.costs)


def search_mend(spec: EnsembleSpec, job: Job, path: KeyPath) -> str:
    """What a search could say instead, where the values that it varies at a path of a job do not fit; "": nothing."""
    dotted, over = ".".join(map(str, path)), spec.search.over if spec.search is not None else {}
    for varied, what in over.items():
        owner, inside, argument = varied.partition(".arguments.")
        names = over[f"{owner}.name"].choice if f"{owner}.name" in over else None
        own = getattr(getattr(job, owner, None), "name", None)
        if inside and varied == dotted and names is not None and own in names:
            others = [name for name in names if name != own]
            return f"say beside its distribution where it is set: when: {{{owner}.name: {', '.join(map(str, others))}}}"
        ends = what.uniform or what.log_uniform
        whole = ends is not None and what.step is None and all(end == int(end) for end in ends) and ends[0] >= 1
        if ends is not None and whole and (varied == dotted or varied.startswith(f"{dotted}.")):
            kind = "integer" if what.uniform else "log_integer"
            return f"where {argument or varied} is a whole number, {{{kind}: [{int(ends[0])}, {int(ends[1])}]}}"
    return ""


def most_workers(spec: EnsembleSpec) -> int:
    """Virtual workers of all jobs together, with those of the trials, as far as anybody says how many there are."""
    search, workers = spec.search, sum(job.virtual_workers for job in spec.jobs)
    if search is None:
        return workers
    trials = [job for values in corners(search.over) if (job := _trial(search, values)) is not None]
    each = max((job.virtual_workers for job in trials), default=1)
    return workers + each * (_trials_at_most(search))


def _trials_at_most(search: SearchSpec) -> int:
    return min((bound for bound in (search.most_trials, search.most_epochs) if bound is not None), default=search.width)


def _metric_problems(spec: EnsembleSpec, search: SearchSpec) -> Iterator[Problem]:
    from fleet.spec.metrics import metric_name

    job = _trial(search, corners(search.over)[0])
    if job is None:
        return
    if job.task is not None:  # a task measures what it likes
        yield from search_direction_problems(spec, search, job)
        return
    data = spec.data.get(job.data or "")
    held_out = data is None or data.held_out is not None or job.folds is not None
    known = ["loss", *(["test_loss", *map(metric_name, job.metrics)] if held_out else [])]
    if all(metric in known for metric in search.metrics):
        yield from search_direction_problems(spec, search, job)
    for metric in search.metrics:
        if metric in known:
            continue
        why = "" if held_out else " (nothing is held out to measure others on)"
        rule = f"{metric!r} is not measured; trials measure {', '.join(known)}{why}"
        mend = f"add {metric} to the metrics of `search.job`, or name one of them"
        mend = mend if held_out else "add held_out to the data, or use loss"
        yield spec.origins.problem(("search", "metric"), metric, rule, nearest(metric, known), mend)


def _reference_problems(spec: EnsembleSpec, path: KeyPath, reference: str) -> Iterator[Problem]:
    from fleet.spec.references import ReferenceProblem, resolve

    try:
        found = resolve(reference)
    except ReferenceProblem as error:
        yield spec.origins.problem(path, reference, error.rule, error.suggestion, error.mend)
        return
    if not callable(found):
        rule = f"{reference} is of type {type(found).__name__} and cannot be called"
        yield spec.origins.problem(path, reference, rule, mend="name a class or function")
