"""Values that a rehearsal makes up for the epochs of a trial, so that its search has something to decide by."""

from __future__ import annotations

import math

from fleet.spec.distributions import fraction

_PATH = "rehearsed value"


class RehearsedValues:
    """A curve for each trial, drawn by seed path (seed, trial, "rehearsed value"): a share that rises towards its own
    limit, or, where less is better, falls from 1 towards it.

    Args:
        metric: its name.
        seed: the ensemble's.
        lower_is_better: whether less is better.
    """

    def __init__(self, metric: str, seed: int, lower_is_better: bool) -> None:
        self.metric, self._seed, self._falls = metric, seed, lower_is_better

    def of(self, job: str, trial: int, epoch: int) -> float | None:
        """The value after so many epochs."""
        limit, pace = (fraction(self._seed, trial, _PATH, element) for element in range(2))
        risen = float(f"{(0.5 + limit / 2) * -math.expm1(-(0.1 + pace) * epoch):.12g}")
        return 1.0 - risen if self._falls else risen
