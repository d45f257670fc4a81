"""Samplers that suggest next to nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.search import Record


class Numbered:
    """Suggests the trial's number."""

    prefetch: int | None = None

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial."""
        return {"number": trial}


class Looking:
    """Suggests what depends on all that it is shown."""

    def __init__(self, prefetch: int) -> None:
        self.prefetch: int | None = prefetch

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial."""
        assert [record.trial for record in records] == list(range(trial))
        return {"seen": [[record.status, sorted(record.losses.items())] for record in records]}
