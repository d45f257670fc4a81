"""What trials come to and cost: values of their epochs, live or made up by a rehearsal; their jobs; epochs' costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from fleet.journal.events import Epoch, Event
from fleet.profiling.sizing import Size
from fleet.search import Costs
from fleet.spec import EnsembleSpec, Job, resolve, trial_job
from fleet.spec.distributions import fraction
from fleet.spec.search import OPERATIONS
from fleet.workers.runtime import KnownSizes, Runtime

Metrics = Mapping[str, float]


class Values(Protocol):
    """Knows what the trials' epochs came to."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Their names; the first decides."""
        ...

    def of(self, job: str, trial: int, epoch: int) -> tuple[float, ...] | None:
        """The values of a trial's job after so many epochs; None: one is missing, or not finite."""
        ...


class JournalValues:
    """Knows the values that the journal's epochs tell, or where the journal had no time to, the checkpoints.

    Args:
        metrics: their names.
        saved: (job, epoch) -> the metrics of that epoch, by the job's newest checkpoint; empty where it has none.
    """

    def __init__(self, metrics: tuple[str, ...], saved: Callable[[str, int], Metrics]) -> None:
        self.metrics, self._saved = metrics, saved
        self._known: dict[tuple[str, int], Metrics] = {}

    def event(self, event: Event) -> None:
        """Take one event of the journal."""
        if isinstance(event, Epoch):
            self._known[event.job, event.epoch] = event.metrics

    def of(self, job: str, trial: int, epoch: int) -> tuple[float, ...] | None:
        """The values; see `Values`."""
        known = self._known.get((job, epoch)) or self._saved(job, epoch)
        values = tuple(float(known.get(metric, math.nan)) for metric in self.metrics)
        return values if all(map(math.isfinite, values)) else None


_PATH = "rehearsed value"


class RehearsedValues:
    """A curve for each trial, drawn by seed path (seed, trial, "rehearsed value"): a share that rises towards its own
    limit, or, where less is better, falls from 1 towards it.

    Args:
        metrics: their names; each has curves of its own.
        seed: the ensemble's.
        rises: of each metric, whether more is better.
    """

    def __init__(self, metrics: tuple[str, ...], seed: int, rises: tuple[bool, ...]) -> None:
        self.metrics, self._seed, self._rises = metrics, seed, rises

    def of(self, job: str, trial: int, epoch: int) -> tuple[float, ...] | None:
        """The values after so many epochs."""
        return tuple(self._value(trial, epoch, place) for place in range(len(self.metrics)))

    def _value(self, trial: int, epoch: int, place: int) -> float:
        limit, pace = (fraction(self._seed, trial, _PATH, 2 * place + element) for element in range(2))
        risen = float(f"{(0.5 + limit / 2) * -math.expm1(-(0.1 + pace) * epoch):.12g}")
        return risen if self._rises[place] else 1.0 - risen


_KEPT = 64  # those that were made last


class TrialJobs:
    """The jobs of trials, by number; of the last ones that were made each is kept.

    Args:
        spec: one with a search.
    """

    def __init__(self, spec: EnsembleSpec) -> None:
        self._spec = spec
        self._made: dict[int, Job] = {}

    def of(self, trial: int, values: Mapping[str, Any]) -> Job:
        """The job of a trial, whose values are always the same.

        Raises:
            ValueError, SpecError: see `fleet.spec.trials`.
        """
        if trial not in self._made:
            self._made[trial] = trial_job(self._spec, trial, values)
            if len(self._made) > _KEPT:
                del self._made[next(iter(self._made))]
        return self._made[trial]


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
