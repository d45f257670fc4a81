"""A search as a run's journal left it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fleet.run.bad_input import BadInput
from fleet.run.search.bounds import SPEC, Bounds
from fleet.run_directory.journal import JournalLine
from fleet.search import OWN_TRIALS, Change, Costs, Decision, Record, Search, Segment
from fleet.search.of_spec import search_of
from fleet.spec import EnsembleSpec, SearchSpec

_KINDS = ("bounds", "search", "result", "own_trial", "pruned", "failed", "ahead", "withdrawn", "front")


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
        own_trials: by number, the last line about each trial that a person trains.
        pruned: names of the trials of which the journal says that the search wants no more.
        failed: name -> the line that says how a trial failed, of those whose failure the search was told.
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
    own_trials: Mapping[int, JournalLine]
    pruned: frozenset[str]
    failed: Mapping[str, JournalLine]
    beyond: Mapping[int, Sequence[Segment]]
    sure: frozenset[Segment]
    unused: int
    front: Sequence[str] = ()

    def begun(self, decision: Decision) -> dict[str, Any]:
        """What the journal says of a decision besides, where a trial begins."""
        if decision.kind != "start":
            return {}
        return {"values": dict(self.search.values(decision.trial)), "cost": self.costs.known[decision.trial]}

    def told(self, decision: Decision) -> dict[str, Any]:
        """What the journal says of a decision, but its trial's name."""
        return {**asdict(decision), **self.begun(decision)}


def recorded(spec: EnsembleSpec, costs: Costs, lines: Iterable[JournalLine]) -> Recorded:
    """Let the search of a spec decide once more all that the journal says it has decided.

    Raises:
        BadInput: it decides otherwise now.
    """
    assert spec.search is not None
    mine = [line for line in lines if line["event"] in _KINDS]
    told = [line for line in mine if line["event"] == "bounds"]
    bounds = [Bounds.of_line(line) for line in told]
    written = [line for line in mine if line["event"] == "search"]
    starts, known = [line for line in written if line["kind"] == "start"], KnownCosts(costs)
    known.known.update({line["trial"]: line["cost"] for line in starts})
    search = search_of((bounds or [Bounds.of(spec.search)])[0].put_into(spec), known)
    for line in starts:
        search.remember(line["trial"], line["values"])
    _replay(search, mine, spec.search)
    found = Recorded(
        search, known, len(written), bounds[-1] if bounds else None, _asked(told),
        frozenset(line["wish"] for line in told if line.get("wish") is not None),
        {line["trial"]: line for line in mine if line["event"] == "own_trial"}, _pruned(mine), _failed(mine),
        _beyond(mine), frozenset(_segment(line) for line in mine if line.get("sure")),
        sum(line["unused"] for line in mine if line["event"] == "withdrawn"),
        next((line["jobs"] for line in reversed(mine) if line["event"] == "front"), ()),
    )  # fmt: skip
    _check(found, written)
    return found


def _replay(search: Search, lines: Iterable[JournalLine], section: SearchSpec) -> None:
    """Tell the search, in the order of the journal, results and what people changed; the first bounds it has."""
    for line in lines:
        if line["event"] == "result":
            search.tell(line["trial"], line["epoch"], line["value"], line.get("further", ()))
        elif line["event"] == "bounds":
            search.changed(Bounds.of_line(line).change(line["time"]))
        elif line["event"] == "own_trial":
            search.changed(own_trial_change(line, section))


def own_trial_change(line: JournalLine, section: SearchSpec) -> Change:
    """What a search is told of a trial that a person trains, by a line `own_trial` of the journal."""
    value, number = line["value"], OWN_TRIALS + line["trial"]
    losses = {} if value is None else {section.epochs: -value if section.maximise else value}
    return Change(line["time"], own=Record(number, line["values"], losses, line["status"]))


def _asked(lines: Sequence[JournalLine]) -> Bounds | None:
    """The bounds of the spec at the last start at which they were others than before."""
    mine = [line for line in lines if line.get("by", SPEC) == SPEC]
    return replace(Bounds.of_line(mine[-1]), over=False) if mine else None


def _check(found: Recorded, written: Sequence[JournalLine]) -> None:
    """Raise BadInput if the search decides otherwise than it did."""
    decisions = found.search.decisions
    for number, line in enumerate(written):
        mine = found.told(decisions[number]) if number < len(decisions) else {}
        mine = json.loads(json.dumps(mine))
        theirs = {key: line.get(key) for key in mine}
        if not mine or mine != theirs:
            raise BadInput(
                f"the search decides otherwise than the journal says, from decision {number} on: {_told(mine)} now, "
                f"{_told(theirs)} then; go on with the spec and the versions of fleet and optuna with which it began, "
                "or begin another run with --out"
            )


def _told(keys: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in keys.items()) or "nothing"


def _failed(lines: Sequence[JournalLine]) -> dict[str, JournalLine]:
    told = {line["job"] for line in lines if line["event"] == "result" and line["value"] is None}
    found: dict[str, JournalLine] = {}
    for line in lines:
        if line["event"] == "failed" and line["job"] in told:
            found[line["job"]] = line
        elif line["event"] == "withdrawn":
            found.pop(line["job"], None)
    return found


def _beyond(lines: Iterable[JournalLine]) -> dict[int, list[Segment]]:
    found: dict[int, list[Segment]] = {}
    for line in lines:
        trial = line.get("trial", -1)
        if line["event"] == "ahead":
            segment, begun = _segment(line), found.setdefault(trial, [])
            begun += [] if segment in begun else [segment]
        elif line["event"] == "search" and line["kind"] in ("start", "resume"):
            found[trial] = found.get(trial, [])[1:]
        elif line["event"] == "withdrawn":
            found[trial] = []
    return {trial: segments for trial, segments in found.items() if segments}


def _segment(line: JournalLine) -> Segment:
    return Segment(line["trial"], line["start"], line["end"])


def _pruned(lines: Iterable[JournalLine]) -> frozenset[str]:
    found: set[str] = set()
    for line in lines:
        if line["event"] == "pruned":
            found.add(line["job"])
        elif line["event"] == "search" and line["kind"] == "resume":
            found.discard(line["job"])
    return frozenset(found)
