"""What suggests the values of trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fleet.search.record import Record


class Sampler(Protocol):
    """Suggests values: a pure function of its seed, the trial's number and the records."""

    @property
    def prefetch(self) -> int | None:
        """How many trials ahead it suggests: for trial i it knows what was known when trial i - prefetch began.

        None: it never looks at results, and suggests any trial at any time.
        """
        ...

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial: dotted path -> plain value.

        Args:
            trial: its number.
            records: all trials with lower numbers, in their order; none where `prefetch` is None.
        """
        ...
