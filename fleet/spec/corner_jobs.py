"""Trials at the ends of what a search's values can be, and what these ask of the data beside the jobs."""

from __future__ import annotations

from fleet.spec.corners import corners
from fleet.spec.data_keys import data_key
from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.job import Job
from fleet.spec.problem import SpecError
from fleet.spec.trial_job import trial_job


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
