"""Which jobs are to stop while others go on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fleet.journal.run_requests import StopRequests
from fleet.session.search.searching import Searching


@dataclass(frozen=True)
class Halted:
    """Jobs that are to stay stopped: those that people name, and the trials of a search whose hours are over.

    Args:
        wishes: of people.
        searching: the search; None: the run has none.
    """

    wishes: StopRequests
    searching: Searching | None = None

    def jobs(self) -> Collection[str]:
        """Their names."""
        named = self.wishes.jobs()
        return named if self.searching is None else named | self.searching.halted()
