"""A recorded search that decides once more, perhaps by another rule; what nobody trained is as bad as a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import PydanticCustomError

from fleet.search import Change, Record, Search
from fleet.search.of_spec import rule_of
from fleet.simulator.searching.recorded_search import RecordedSearch
from fleet.spec import SearchSpec
from fleet.spec.search import Stopping


@dataclass(frozen=True)
class AskedSearch:
    """What a replayed search is asked for.

    Attributes:
        stopping: which trials train on.
        width: virtual slots.
        trials: how many there may be; None: as many as were recorded, or the epochs allow.
        epochs: how many all of them together may train; None: as many as they need.
        changes: what people changed as it went on.
    """

    stopping: Stopping
    width: int
    trials: int | None = None
    epochs: int | None = None
    changes: tuple[Change, ...] = ()


class NobodyKnows(LookupError):
    """The search asks for a trial that was never suggested."""


class _Suggested:
    """Suggests what was suggested."""

    prefetch: int | None = None

    def __init__(self, record: RecordedSearch) -> None:
        self._trials = record.told.trials

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial."""
        if trial not in self._trials:
            raise NobodyKnows(trial)
        return self._trials[trial].values


def as_recorded(record: RecordedSearch) -> AskedSearch:
    """What was asked for, with all that people changed meanwhile."""
    first, *later = record.told.bounds
    return AskedSearch(record.section.stopping, first.width or 1, first.trials, first.epochs, tuple(later))


def replayed(record: RecordedSearch, asked: AskedSearch) -> Search:
    """The search as it begins; it has no more trials than were recorded, unless it is played as it was and is over.

    Raises:
        ValueError: its bounds or its rungs cannot be.
    """
    section = record.section.model_copy(update={"stopping": asked.stopping})
    _check_population(record, section)
    is_same = asked == as_recorded(record) and record.is_over
    there = len(record.told.trials)
    trials = asked.trials if is_same else min(there, asked.trials or there)
    costs = {trial: one.cost for trial, one in record.told.trials.items()}
    search = Search(
        rule_of(section, record.seed or 0), _Suggested(record), lambda trial, values: costs[trial], asked.width,
        trials, asked.epochs, [record.told.maximise, *(more for _, more in record.told.further)], asked.trials,
    )  # fmt: skip
    for change in asked.changes:
        search.changed(change if is_same else replace(change, trials=trials, planned=change.trials))
    return search


def _check_population(record: RecordedSearch, section: SearchSpec) -> None:
    """Raise ValueError where it is not known what a population would do, or its trials could be no members."""
    if section.stopping.name != "population":
        return
    if record.seed is None:
        raise ValueError(
            "the seed of the search decides who goes on from whom, and the journal does not say it: an older version "
            "of fleet wrote it; take another stopping rule, or train the search anew"
        )
    try:
        section.check_population()
    except PydanticCustomError as error:
        mend = (error.context or {}).get("mend", "take another stopping rule")
        raise ValueError(f"its trials are no population: {error.message()}; {mend}") from None
