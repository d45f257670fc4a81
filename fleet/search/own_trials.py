"""Trials that people train themselves beside a search, as its sampler sees them."""

from __future__ import annotations

from fleet.search.record import Record

OWN_TRIALS = 1_000_000
"""The number of the first of them; a search's own trials have lower ones."""


class OwnTrials:
    """They have no virtual slot, and no stopping rule knows them; a sampler that learns does."""

    def __init__(self) -> None:
        self._told: list[tuple[int, Record]] = []

    def take(self, begun: int, record: Record) -> None:
        """Take how one of them stands, as so many trials of the search have begun."""
        self._told.append((begun, record))

    def known(self, trial: int) -> list[Record]:
        """The own trials that were known when a trial of the search began, in the order of their numbers."""
        newest = {record.trial: record for begun, record in self._told if begun <= trial}
        return [newest[number] for number in sorted(newest)]
