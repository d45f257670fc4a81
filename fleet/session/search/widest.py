"""The most that trials of a search can ask of a run, before their values are known."""

from __future__ import annotations

from fleet.spec import EnsembleSpec
from fleet.spec.search import share_of
from fleet.spec.trials import corner_jobs
from fleet.spec.values import MOST_JOBS


def trials_at_once(spec: EnsembleSpec) -> int:
    """How many trials can train at a time, as far as there are devices."""
    if spec.search is None:
        return 0
    return MOST_JOBS if share_of(spec.search.ahead) else spec.search.width


def largest_trial_batch(spec: EnsembleSpec) -> int:
    """The most samples that a trial takes at once, in a step or as it is evaluated; 0: there are no trials."""
    jobs = corner_jobs(spec)
    if not jobs:
        return 0
    step = max(job.virtual_workers for job in jobs) * max(job.batch_size for job in jobs)
    return max(step, *(job.evaluation_batch_size or 0 for job in jobs))
