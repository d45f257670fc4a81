"""The search of a run as its report and its tables tell it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fleet.report import wording
from fleet.run_directory.journal import read_journal
from fleet.search.columns import value_columns, value_row
from fleet.search.journalled import Journalled, JournalledOwnTrial, JournalledTrial, journalled
from fleet.search.of_run import section_of
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

    @property
    def asked(self) -> str:
        """What was asked for, in a sentence for people."""
        rule, sampler = self.section.stopping.name, self.section.sampler.name
        most = self.section.most_trials
        trials = f"{len(self.rows)} of {most:,} trials" if most is not None else wording.plural(len(self.rows), "trial")
        budget = self.section.budget
        most_epochs = None if budget is None else budget.epochs
        epochs = f"{self.told.epochs:,} of {most_epochs:,} epochs" if most_epochs else f"{self.told.epochs:,} epochs"
        hours = f" within {self.told.hours:g} hours" if self.told.hours is not None else ""
        return (
            f"{trials} and {epochs} have begun{hours}; sampler {sampler}, stopping {rule}, width {self.section.width}"
        )


def read_searched(run_dir: Path) -> Searched | None:
    """The search of a run; None: it has none, it has not begun, or the spec that began it cannot be read.

    Args:
        run_dir: the run's directory.
    """
    try:
        kept = json.loads((run_dir / "spec.json").read_text(encoding="utf-8"))
        if not kept.get("search"):
            return None
        told = journalled(read_journal(run_dir / "journal.jsonl"))
        section = section_of(kept, told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return None if section is None else Searched(section, told)


def _row(
    section: SearchSpec, trial: JournalledTrial, known: tuple[int, float] | None, values: Mapping[str, Any]
) -> TrialRow:
    epochs, value = known or (max(trial.results, default=0), None)
    further = () if value is None else trial.further.get(epochs, ())
    return TrialRow(trial, trial.status, epochs, value, value_row(section.over, values), further)
