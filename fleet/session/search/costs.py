"""What an epoch of a trial costs in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fleet.profiling.sizing import Size
from fleet.search import Costs
from fleet.session.search.trial_jobs import TrialJobs
from fleet.spec import Job, resolve
from fleet.spec.search import OPERATIONS
from fleet.workers.runtime import KnownSizes, Runtime

UNIT = 1_000_000
"""Operations that cost 1."""
_PASSES = 6  # operations of a sample for each parameter, where they cannot be counted: two forward, four backward


def costs_of(runtime: Runtime, sizes: KnownSizes, jobs: TrialJobs) -> Costs:
    """The costs of the trials of a runtime's search: functions of its spec and its data alone, of no device.

    Args:
        runtime: of the run.
        sizes: of jobs, those that are known.
        jobs: of its trials.
    """
    search = runtime.spec.search
    assert search is not None
    asked = search.costs
    if isinstance(asked, int):
        return lambda trial, values: asked
    if asked != OPERATIONS:
        own: Callable[[Mapping[str, Any]], int] = resolve(asked)
        return lambda trial, values: own(values)
    return lambda trial, values: _counted(runtime, sizes, lambda: jobs.of(trial, values))


def _counted(runtime: Runtime, sizes: KnownSizes, made: Callable[[], Job]) -> int:
    """Operations of an epoch, in millions; 1 where no network can be made of the values: the trial fails."""
    try:
        job = made()
        known = replace(runtime, spec=runtime.spec.with_jobs((job,)))  # as if there were no other
        size = sizes.of(known, job.name)
        samples = known.samples_of(job.name)
    except (Exception, SystemExit):  # of the trial's own code
        return 1
    return max(1, round(_operations(size) * samples / UNIT))


def _operations(size: Size) -> float:
    return size.operations or float(_PASSES * size.parameters)
