"""Values drawn at random, each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.search.record import Record
from fleet.spec.distributions import Distribution, drawn


class Random:
    """Each value is drawn by seed path (seed, trial, path of the key), as the jobs of a `sample` are.

    Args:
        over: dotted path -> its distribution.
        seed: the search's.
    """

    prefetch: int | None = None

    def __init__(self, over: Mapping[str, Distribution], seed: int) -> None:
        self._over, self._seed = dict(over), seed

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial."""
        return drawn(self._over, self._seed, trial)
