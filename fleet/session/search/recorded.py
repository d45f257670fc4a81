"""A search as a run's journal left it, and the bounds that it goes by: it decides once more all that it decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleet.journal import events
from fleet.journal.journal import as_json
from fleet.search import OWN_TRIALS, Change, Costs, Decision, Record, Search, Segment
from fleet.search.of_spec import search_of, trials_of
from fleet.spec import EnsembleSpec, SearchSpec
from fleet.spec.search import Budget
from fleet.workers.agreement import BadInput

SPEC, WISH, CLOCK = "spec", "wish", "clock"
"""Why a search goes by other bounds."""
_SECONDS = 3600.0  # of an hour


@dataclass(frozen=True)
class Bounds:
    """What a search may use; None stands for as much as it likes.

    Attributes:
        width: virtual slots.
        trials: how many there may be.
        epochs: how many all of them together may train.
        hours: of the run, all its sessions together.
        over: whether the hours were over, so that it has ended.
    """

    width: int
    trials: int | None = None
    epochs: int | None = None
    hours: float | None = None
    over: bool = False

    @classmethod
    def of(cls, search: SearchSpec) -> Bounds:
        """Take the bounds that the section asks for."""
        hours = None if search.budget is None else search.budget.hours
        return cls(search.width, trials_of(search), search.most_epochs, hours)

    @classmethod
    def told(cls, event: events.Bounds) -> Bounds:
        """The bounds that an event of the journal tells."""
        return cls(event.width, event.trials, event.epochs, event.hours, bool(event.over))

    def put_into(self, spec: EnsembleSpec) -> EnsembleSpec:
        """A spec with a search, with these in place of its own."""
        assert spec.search is not None
        budget = None if self.epochs is None else Budget(epochs=self.epochs)
        more = {"width": self.width, "trials": self.trials, "budget": budget}
        return spec.model_copy(update={"search": spec.search.model_copy(update=more)})

    def changed(self, wish: Mapping[str, Any]) -> Bounds:
        """These with those that somebody wishes."""
        return replace(self, **wish)

    def at(self, seconds: float) -> Bounds:
        """These at a second of the run: over where the hours are, and not over any more where there are more now."""
        return replace(self, over=self.hours is not None and seconds >= self.hours * _SECONDS)

    def change(self, time: int) -> Change:
        """What a search is told to go by them from a virtual time on."""
        return Change(time, self.width, self.trials, self.epochs, self.over)


class KnownCosts:
    """Costs that are asked for once, and never where the journal tells them.

    Args:
        costs: what they are otherwise.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs, self.known = costs, dict[int, int]()

    def __call__(self, trial: int, values: Mapping[str, Any]) -> int:
        if trial not in self.known:
            self.known[trial] = self._costs(trial, values)
        return self.known[trial]


@dataclass(frozen=True)
class Recorded:
    """What a journal says of a search.

    Attributes:
        search: as it stands after all results that the journal has.
        costs: of its trials.
        written: how many of its decisions the journal has.
        bounds: those that it goes by; None: it has not begun.
        asked: those that the spec had when it counted last; None: it has not begun.
        wishes: numbers of the changes that people asked for and that were taken in.
        own_trials: by number, the last event of each trial that a person trains.
        pruned: names of the trials of which the journal says that the search wants no more.
        failed: name -> how a trial failed, of those whose failure the search was told.
        beyond: trial -> segments that it has trained, or trains, ahead of need, in their order.
        sure: segments among these that it will want in any case.
        unused: epochs that were trained ahead and taken back.
        front: the Pareto front at the search's last end, names of jobs.
    """

    search: Search
    costs: KnownCosts
    written: int
    bounds: Bounds | None
    asked: Bounds | None
    wishes: frozenset[int]
    own_trials: Mapping[int, events.OwnTrial]
    pruned: frozenset[str]
    failed: Mapping[str, events.Failed]
    beyond: Mapping[int, Sequence[Segment]]
    sure: frozenset[Segment]
    unused: int
    front: Sequence[str] = ()

    def told(self, decision: Decision, job: str) -> events.Decided:
        """What the journal says of a decision on a trial, which is that job."""
        begun: dict[str, Any] = {}
        if decision.kind == "start":
            begun = {"values": dict(self.search.values(decision.trial)), "cost": self.costs.known[decision.trial]}
        keys = {**vars(decision), "copy": decision.copy and events.Copied(**vars(decision.copy))}
        return events.Decided(job=job, **keys, **begun)


def recorded(spec: EnsembleSpec, costs: Costs, journal: Iterable[events.Event]) -> Recorded:
    """Let the search of a spec decide once more all that the journal says it has decided.

    Raises:
        BadInput: it decides otherwise now.
    """
    assert spec.search is not None
    told = _Told()
    for event in journal:
        told.take(event)
    known = KnownCosts(costs)
    begun = [each for each in told.decided if each.kind == "start"]
    known.known.update({each.trial: each.cost for each in begun if each.cost is not None})
    bounds = [Bounds.told(each) for each in told.bounds]
    search = search_of((bounds or [Bounds.of(spec.search)])[0].put_into(spec), known)
    for each in begun:
        search.remember(each.trial, each.values)
    told.replay(search, spec.search)
    results = {each.job for each in told.changes if isinstance(each, events.Result) and each.value is None}
    found = Recorded(
        search=search,
        costs=known,
        written=len(told.decided),
        bounds=bounds[-1] if bounds else None,
        asked=_asked(told.bounds),
        wishes=frozenset(each.wish for each in told.bounds if each.wish is not None),
        own_trials=told.own,
        pruned=frozenset(told.pruned),
        failed={job: failed for job, failed in told.failed.items() if job in results},
        beyond={trial: segments for trial, segments in told.beyond.items() if segments},
        sure=frozenset(told.sure),
        unused=told.unused,
        front=told.front,
    )
    _check(found, told.decided)
    return found


class _Told(events.Observer):
    """What the journal says of a search."""

    def __init__(self) -> None:
        self.decided: list[events.Decided] = []
        self.bounds: list[events.Bounds] = []
        self.changes: list[events.Bounds | events.Result | events.OwnTrial] = []  # what the search is told, in order
        self.own: dict[int, events.OwnTrial] = {}
        self.pruned: set[str] = set()
        self.failed: dict[str, events.Failed] = {}
        self.beyond: dict[int, list[Segment]] = {}
        self.sure: set[Segment] = set()
        self.unused = 0
        self.front: Sequence[str] = ()

    def on_bounds(self, event: events.Bounds) -> None:
        self.bounds.append(event)
        self.changes.append(event)

    def on_result(self, event: events.Result) -> None:
        self.changes.append(event)

    def on_own_trial(self, event: events.OwnTrial) -> None:
        self.own[event.trial] = event
        self.changes.append(event)

    def on_search(self, event: events.Decided) -> None:
        self.decided.append(event)
        if event.kind == "resume":
            self.pruned.discard(event.job)
        if event.kind in ("start", "resume"):
            self.beyond[event.trial] = self.beyond.get(event.trial, [])[1:]

    def on_ahead(self, event: events.Ahead) -> None:
        segment, begun = Segment(event.trial, event.start, event.end), self.beyond.setdefault(event.trial, [])
        begun += [] if segment in begun else [segment]
        if event.sure:
            self.sure.add(segment)

    def on_withdrawn(self, event: events.Withdrawn) -> None:
        self.beyond[event.trial] = []
        self.failed.pop(event.job, None)
        self.unused += event.unused

    def on_pruned(self, event: events.Pruned) -> None:
        self.pruned.add(event.job)

    def on_failed(self, event: events.Failed) -> None:
        self.failed[event.job] = event

    def on_front(self, event: events.Front) -> None:
        self.front = event.jobs

    def replay(self, search: Search, section: SearchSpec) -> None:
        """Tell the search, in the order of the journal, results and what people changed."""
        for event in self.changes:
            if isinstance(event, events.Result):
                search.tell(event.trial, event.epoch, event.value, event.further)
            elif isinstance(event, events.Bounds):
                search.changed(Bounds.told(event).change(event.time))
            else:
                search.changed(own_trial_change(event, section))


def own_trial_change(told: events.OwnTrial, section: SearchSpec) -> Change:
    """What a search is told of a trial that a person trains."""
    value, number = told.value, OWN_TRIALS + told.trial
    losses = {} if value is None else {section.epochs: -value if section.maximise else value}
    return Change(told.time, own=Record(number, told.values, losses, told.status))  # type: ignore[arg-type]


def _asked(told: Sequence[events.Bounds]) -> Bounds | None:
    """The bounds of the spec at the last start at which they were others than before."""
    mine = [each for each in told if each.by == SPEC]
    return replace(Bounds.told(mine[-1]), over=False) if mine else None


def _check(found: Recorded, written: Sequence[events.Decided]) -> None:
    """Raise BadInput if the search decides otherwise than it did."""
    decisions = found.search.decisions
    for number, theirs in enumerate(written):
        mine = _keys(found.told(decisions[number], theirs.job)) if number < len(decisions) else {}
        if mine != _keys(theirs):
            raise BadInput(
                f"the search decides otherwise than the journal says, from decision {number} on: {_in_words(mine)} "
                f"now, {_in_words(_keys(theirs))} then; go on with the spec and the versions of fleet and optuna with "
                "which it began, or begin another run with --out"
            )


def _keys(told: events.Decided) -> dict[str, Any]:
    """What a decision is, as JSON has it."""
    keys = {key: value for key, value in as_json(told).items() if key not in ("t", "unix", "event", "job")}
    return {**keys, "copy": keys.get("copy")}


def _in_words(keys: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in keys.items()) or "nothing"
