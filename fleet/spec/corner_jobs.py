"""Trials at the ends of what a search's values can be."""

from __future__ import annotations

from fleet.spec.corners import corners
from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.job import Job
from fleet.spec.problem import SpecError
from fleet.spec.trial_job import trial_job


def corner_jobs(spec: EnsembleSpec) -> list[Job]:
    """Trials with the ends of what a search's values can be, as far as these make jobs; none without a search.

    Each has a name of its own, though the search would call some of them alike.
    """
    found: list[Job] = []
    names = {job.name for job in spec.jobs}
    for values in corners(spec.search.over) if spec.search is not None else ():
        try:
            job = trial_job(spec, 0, values)
        except SpecError:
            continue  # a trial with such values fails
        if job.name in names:
            job = job.model_copy(update={"name": f"{job.name} ({len(found)})"})
        names.add(job.name)
        found.append(job)
    return found
