"""Jobs of a search's trials: of each trial by its values, and of likely ones at the ends of all ranges."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fleet.spec.distributions import corners, set_paths
from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.expansion import trial_keys, trial_origin
from fleet.spec.job import Job, data_key
from fleet.spec.problem import SpecError
from fleet.spec.search import SearchSpec
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
    found: list[Job] = []
    names = {job.name for job in spec.jobs}
    for job in _likely_trials(spec.search):
        if job.name in names:
            job = job.model_copy(update={"name": f"{job.name} ({len(found)})"})
        names.add(job.name)
        found.append(job)
    return found


def has_folds(spec: EnsembleSpec, key: str) -> bool:
    """Return whether jobs divide a data set into folds; all its training samples then are held-out ones, too."""
    search = spec.search
    varied = search is not None and (search.job.get("folds") is not None or "folds" in search.over)
    trials = _likely_trials(search) if varied else ()
    return key in spec.found.folded or any(job.folds is not None and data_key(job) == key for job in trials)


def with_likely_trials(spec: EnsembleSpec) -> EnsembleSpec:
    """Return the spec with trials at the ends of its search's ranges as further jobs, whose names have no meaning."""
    if spec.search is None:
        return spec
    trials = _likely_trials(spec.search)
    places = [trial_origin(spec.search.over)] * len(trials)
    origins = dataclasses.replace(spec.origins, jobs=(*spec.origins.jobs, *places))
    return spec.with_jobs((*spec.jobs, *trials)).written_at(origins)


def most_workers(spec: EnsembleSpec) -> int:
    """Count the virtual workers of all jobs together, and of the trials, as far as anybody says how many there are."""
    search, workers = spec.search, sum(job.virtual_workers for job in spec.jobs)
    if search is None:
        return workers
    each = max((job.virtual_workers for job in _likely_trials(search)), default=1)
    bounds = [bound for bound in (search.most_trials, search.most_epochs) if bound is not None]
    return workers + each * min(bounds, default=search.width)


def first_trial(search: SearchSpec) -> Job | None:
    """Return a trial with the first values of all ranges; None if they make no job."""
    return _trial(search, corners(search.over)[0])


def _likely_trials(search: SearchSpec | None) -> list[Job]:
    found = [] if search is None else [_trial(search, values) for values in corners(search.over)]
    return [job for job in found if job is not None]


def _trial(search: SearchSpec, values: Mapping[str, Any]) -> Job | None:
    """A trial with these values; None if they make no valid job: such a trial fails."""
    try:
        return Job.model_validate(trial_keys(search.name, search.job, 0, values))
    except ValidationError:
        return None
