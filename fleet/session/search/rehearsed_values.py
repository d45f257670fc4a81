"""Values that a rehearsal makes up for the epochs of a trial, so that its search has something to decide by."""

from __future__ import annotations

import math

from fleet.spec.distributions import fraction

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
