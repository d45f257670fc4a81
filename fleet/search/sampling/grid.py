"""Every combination of values once."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from fleet.search.record import Record
from fleet.spec.distributions import Distribution, Enumerated


class Grid:
    """Trial i has combination i; the last path varies fastest, and shorter blocks come first.

    Args:
        over: dotted path -> its distribution, of choices and whole numbers, or with steps.
    """

    prefetch: int | None = None

    def __init__(self, over: Mapping[str, Distribution]) -> None:
        self._all = Enumerated(over)

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial.

        Raises:
            IndexError: there are not so many.
        """
        return copy.deepcopy(self._all.nth(trial))
