"""A search as the journal of its run tells it, for people and for replays: nothing is decided anew."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import fleet.journal.events as events
from fleet.search.decisions import Change, Copy, Decision
from fleet.search.space import value_columns, value_row
from fleet.search.virtual_time import front
from fleet.spec import SearchSpec

_STATUS = {
    "start": "under way", "resume": "under way", "pause": "paused", "stop": "stopped", "done": "done", "fail": "failed",
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What a search was told.

    Attributes:
        time: seconds of the run.
        trial: whose.
        epoch: after how many epochs.
        value: of the metric; None: the trial had failed by then.
    """

    time: float
    trial: int
    epoch: int
    value: float | None


@dataclass(frozen=True)
class JournalledOwnTrial:
    """A trial that a person trains beside the search.

    Attributes:
        number: from 0.
        values: dotted path -> value.
        status: as the search knows it: suggested, done or failed.
        value: of the metric; None: it has none.
    """

    number: int
    values: Mapping[str, Any]
    status: str
    value: float | None


@dataclass
class JournalledTrial:
    """One trial.

    Attributes:
        trial: its number.
        job: its name.
        values: dotted path -> what was suggested.
        cost: of an epoch, in virtual time.
        metrics: finished epoch -> its metrics, as far as they are finite.
        results: epoch -> what the search was told; None: the trial had failed by then.
        further: epoch -> what it was told of its further metrics.
        failed: the epochs that it had when it failed; None: it did not.
        error: why it failed; empty where it did not.
        done: the epochs after which it trained no more by its own stopping rule; None: that never came.
        kind: of the last decision on it.
        pruned: whether the search wants no more of it.
        same_as: the job that trained the same values, whose results are its own; empty: it trains by itself.
    """

    trial: int
    job: str
    values: Mapping[str, Any]
    cost: int
    metrics: dict[int, Mapping[str, float]] = field(default_factory=dict)
    results: dict[int, float | None] = field(default_factory=dict)
    further: dict[int, tuple[float, ...]] = field(default_factory=dict)
    failed: int | None = None
    error: str = ""
    done: int | None = None
    kind: str = "start"
    pruned: bool = False
    same_as: str = ""

    @property
    def status(self) -> str:
        """How the trial stands, in a word for people: under way, paused, stopped, done or failed."""
        return "stopped" if self.pruned and self.kind == "pause" else _STATUS[self.kind]

    def curve(self, metric: str) -> dict[int, float]:
        """Epoch -> value, as far as any is known and finite."""
        known = {epoch: row[metric] for epoch, row in self.metrics.items() if metric in row}
        told = {epoch: value for epoch, value in self.results.items() if value is not None}
        return dict(sorted({**known, **told}.items()))


@dataclass(frozen=True)
class Journalled:
    """What a journal says of a search.

    Attributes:
        trials: by number.
        decisions: in virtual order.
        results: in the order in which they came.
        bounds: what people asked of it, the first from its begin on; empty: it never began.
        hours: of the run, that the search may take; None: any number.
        metric: by which trials are compared; empty: it never began.
        maximise: whether more of it is better.
        further: its further metrics, each with whether more of it is better.
        own: trials that people train themselves, by number.
    """

    trials: Mapping[int, JournalledTrial]
    decisions: tuple[Decision, ...]
    results: tuple[Result, ...]
    bounds: tuple[Change, ...]
    hours: float | None
    metric: str
    maximise: bool
    further: tuple[tuple[str, bool], ...] = ()
    own: tuple[JournalledOwnTrial, ...] = ()

    @property
    def clock(self) -> int:
        """The virtual time of the last decision."""
        return self.decisions[-1].time if self.decisions else 0

    @property
    def epochs(self) -> int:
        """Epochs of all segments that have begun."""
        return sum(one.end - one.start for one in self.decisions if one.kind in ("start", "resume"))

    def known(self) -> dict[int, tuple[int, float]]:
        """Trial -> epoch and value of its last result on which anything was decided, of those that have a value."""
        found: dict[int, tuple[int, float]] = {}
        for one in self.decisions:
            epoch = one.start if one.kind in ("start", "resume") else one.end
            value = self.trials[one.trial].results.get(epoch)
            if one.kind == "fail":
                found.pop(one.trial, None)
            elif value is not None:
                found[one.trial] = (epoch, value)
        return found

    def best(self) -> tuple[int, float] | None:
        """The trial whose last known value is best, of equal ones the earlier, and the value; None: there is none."""
        sign = -1.0 if self.maximise else 1.0
        found = min(((sign * value, trial) for trial, (_, value) in self.known().items()), default=None)
        return None if found is None else (found[1], sign * found[0])

    def front(self) -> tuple[int, ...]:
        """The Pareto front by all metrics: trials to whose last known values no other's are better."""
        signs = [-1.0 if more else 1.0 for more in (self.maximise, *(more for _, more in self.further))]
        values = {t: (value, *self.trials[t].further.get(epoch, ())) for t, (epoch, value) in self.known().items()}
        return front({trial: [sign * each for sign, each in zip(signs, some)] for trial, some in values.items()})


def journalled(told: Iterable[events.Event]) -> Journalled:
    """Read the events of a journal, whatever else is in it; those of jobs that are no trials are passed over."""
    reader = _Reader()
    for event in told:
        reader.take(event)
    known = {one.trial: one for one in sorted(reader.trials.values(), key=lambda one: one.trial)}
    decisions, results = tuple(reader.decisions), tuple(one for one in reader.results if one.trial in known)
    bounds, own = tuple(reader.bounds), tuple(one for _, one in sorted(reader.own.items()))
    return Journalled(
        known, decisions, results, bounds, reader.hours, reader.metric, reader.maximise, reader.further, own
    )


class _Reader(events.Observer):
    """Folds events."""

    def __init__(self) -> None:
        self.trials: dict[str, JournalledTrial] = {}
        self.decisions: list[Decision] = []
        self.results: list[Result] = []
        self.bounds: list[Change] = []
        self.hours: float | None = None
        self.metric, self.maximise = "", False
        self.further: tuple[tuple[str, bool], ...] = ()
        self.own: dict[int, JournalledOwnTrial] = {}
        self._early: dict[str, events.Failed] = {}
        self._twins: dict[str, str] = {}  # trial -> the one that answers for it
        self._ahead: dict[str, JournalledTrial] = {}  # trials that train before they begin, and may never do so

    def on_bounds(self, event: events.Bounds) -> None:
        self.bounds.append(Change(event.time, event.width, event.trials, event.epochs, event.over))
        self.hours, self.metric, self.maximise = event.hours, event.metric, event.mode == "max"
        self.further = tuple((each.metric, each.mode == "max") for each in event.further)

    def on_own_trial(self, event: events.OwnTrial) -> None:
        self.own[event.trial] = JournalledOwnTrial(event.trial, event.values, event.status, event.value)

    def on_twin(self, event: events.Twin) -> None:
        self._twins[event.job] = event.of

    def on_ahead(self, event: events.Ahead) -> None:
        if event.job not in self.trials:
            self._ahead.setdefault(event.job, JournalledTrial(event.trial, event.job, {}, 1))

    def on_search(self, event: events.Decided) -> None:
        if event.kind == "start":
            self._begin(event)
        if (trial := self._trial(event.job)) is not None:
            copy = None if event.copy is None else Copy(**vars(event.copy))
            kind: Any = event.kind
            self.decisions.append(Decision(event.time, trial.trial, event.start, event.end, kind, copy))
            trial.kind, trial.pruned = event.kind, trial.pruned and event.kind != "resume"

    def _begin(self, event: events.Decided) -> None:
        job = event.job
        known = self._ahead.pop(job, JournalledTrial(event.trial, job, {}, 1))
        self.trials[job] = replace(known, values=event.values, cost=event.cost or 1, same_as=self._twins.get(job, ""))
        if job in self._early:
            self.on_failed(self._early.pop(job))

    def on_result(self, event: events.Result) -> None:
        if (trial := self._trial(event.job)) is not None:
            trial.results[event.epoch], trial.further[event.epoch] = event.value, event.further
            self.results.append(Result(event.t, trial.trial, event.epoch, event.value))

    def on_epoch(self, event: events.Epoch) -> None:
        if (trial := self._trial(event.job)) is not None:
            metrics = {name: value for name, value in event.metrics.items() if math.isfinite(value)}
            trial.metrics[event.epoch] = metrics

    def on_failed(self, event: events.Failed) -> None:
        if (trial := self._trial(event.job)) is not None:
            trial.failed, trial.error = event.epoch, event.error
        else:
            self._early[event.job] = event  # what cannot be made fails before it begins

    def on_done(self, event: events.Done) -> None:
        if (trial := self._trial(event.job)) is not None:
            trial.done = event.epoch

    def on_pruned(self, event: events.Pruned) -> None:
        if (trial := self._trial(event.job)) is not None:
            trial.pruned = True

    def _trial(self, job: str) -> JournalledTrial | None:
        return self.trials.get(job) or self._ahead.get(job)


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


def section_of(kept: Mapping[str, Any], told: Journalled) -> SearchSpec | None:
    """What a run's search was asked for; None: it has none, or it has not begun.

    Args:
        kept: the content of the run's spec.json, which has no bounds: these may change.
        told: what the run's journal says; its last bounds count.

    Raises:
        ValueError: another version of fleet wrote it, and this one does not understand it.
    """
    if not kept.get("search") or not told.bounds:
        return None
    last = told.bounds[-1]
    budget = {key: most for key, most in (("epochs", last.epochs), ("hours", told.hours)) if most is not None} or None
    modes = ["max" if more else "min" for more in (told.maximise, *(more for _, more in told.further))]
    further = {"mode": modes if told.further else modes[0]} if told.metric else {}
    stopping = {"confidence": 0.0, **kept["search"]["stopping"]}
    asked = {**kept["search"], **further, "width": last.width, "trials": last.trials, "budget": budget}
    asked["stopping"] = stopping if stopping["name"] == "halving" else kept["search"]["stopping"]
    return SearchSpec.model_validate(asked)
