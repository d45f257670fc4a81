"""Trials at the ends of what a search's values can be."""

from __future__ import annotations

from fleet.spec.corners import corners
from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.job import Job
from fleet.spec.problem import SpecError
from fleet.spec.trial_job import trial_job


def corner_jobs(spec: EnsembleSpec) -> list[Job]:
    """Trials with the ends of what a search's values can be, as far as these make jobs; none without a search."""
    found = []
    for values in corners(spec.search.over) if spec.search is not None else ():
        try:
            found.append(trial_job(spec, 0, values))
        except SpecError:
            continue  # a trial with such values fails
    return found
