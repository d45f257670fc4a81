"""The jobs that a search's trials are, each made once for all that ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.spec import EnsembleSpec, Job, trial_job

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
