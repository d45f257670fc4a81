"""Divides the starts of a run among lanes, by what its books know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from fleet.coordination.executor import Start
from fleet.coordination.ledger import Ledger
from fleet.coordination.reading_together import divided, reader_of
from preprocess.sharing.joining import Reader


class Mates(Protocol):
    """Says who of a class reads together."""

    def divided(self, starts: Sequence[Start], places: Sequence[int], most: int) -> list[list[int]]:
        """Divide jobs that start together in one stream, each at its place, among so many lanes at most."""


class LaneMates:
    """Divides the starts of a run by what its books know.

    Args:
        ledger: knows paces, how long jobs train, and how fast preprocessors are.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def divided(self, starts: Sequence[Start], places: Sequence[int], most: int) -> list[list[int]]:
        """Divide jobs that start together in one stream, each at its place, among so many lanes at most."""
        data, path = self._ledger.jobs[starts[0].job].state.data, self._ledger.data_path
        made = math.inf if path is None else path.feeds(data) * self._ledger.lent.times
        return divided(list(map(self._reader, starts, places)), made, most)

    def _reader(self, start: Start, place: int) -> Reader | None:
        job = self._ledger.jobs[start.job]
        pace = 0.0 if job.guessed else min(self._ledger.pace(job.name, start.devices), self._ledger.feeds(job.name))
        return reader_of(job.state, place, len(start.devices), pace)
