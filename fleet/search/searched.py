"""How far the search of a run has come: its trials by number, each with what is known of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fleet.search.columns import value_columns, value_row
from fleet.search.journalled import Journalled, JournalledOwnTrial, JournalledTrial
from fleet.spec import SearchSpec

STATUSES = ("done", "under way", "paused", "stopped", "failed")


@dataclass(frozen=True)
class TrialRow:
    """One trial.

    Attributes:
        told: what the journal says.
        status: `under way`, `paused`, `stopped`, `done` or `failed`.
        epochs: after how many its value is; 0: no result is known.
        value: of the metric; None: it has none.
        values: parameter -> value, of those that it has; of a member of a population those of now.
        further: the search's further metrics then.
    """

    told: JournalledTrial
    status: str
    epochs: int
    value: float | None
    values: Mapping[str, Any]
    further: tuple[float, ...] = ()


@dataclass(frozen=True)
class Searched:
    """A search that has begun.

    Attributes:
        section: what was asked for, with the bounds of the last start.
        told: what the journal says.
    """

    section: SearchSpec
    told: Journalled

    @cached_property
    def rows(self) -> tuple[TrialRow, ...]:
        """One for each trial, by number."""
        known = self.told.known()
        latest = {one.trial: one.copy.values for one in self.told.decisions if one.copy is not None}
        return tuple(
            _row(self.section, trial, known.get(trial.trial), latest.get(trial.trial, trial.values))
            for trial in self.told.trials.values()
        )

    @cached_property
    def front(self) -> tuple[TrialRow, ...]:
        """The trials on the Pareto front; none where there is one metric."""
        there = set(self.told.front()) if self.told.further else set()
        return tuple(row for row in self.rows if row.told.trial in there)

    @cached_property
    def own_rows(self) -> tuple[tuple[JournalledOwnTrial, Mapping[str, Any]], ...]:
        """Trials that people trained themselves, each with parameter -> value."""
        return tuple((one, value_row(self.section.over, one.values)) for one in self.told.own)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """All parameters that there may be."""
        return value_columns(self.section.over)

    @property
    def best(self) -> TrialRow | None:
        """The trial whose last known value is best; None: no trial has a value."""
        best = self.told.best()
        return None if best is None else next(row for row in self.rows if row.told.trial == best[0])

    @property
    def counts(self) -> dict[str, int]:
        """How many trials there are of each status, of those that there are any of."""
        counted = Counter(row.status for row in self.rows)
        return {status: counted[status] for status in STATUSES if counted[status]}


def _row(
    section: SearchSpec, trial: JournalledTrial, known: tuple[int, float] | None, values: Mapping[str, Any]
) -> TrialRow:
    epochs, value = known or (max(trial.results, default=0), None)
    further = () if value is None else trial.further.get(epochs, ())
    return TrialRow(trial, trial.status, epochs, value, value_row(section.over, values), further)
