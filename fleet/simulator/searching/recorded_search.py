"""A search that a run's journal holds: what is known of each trial, and the same search asked again."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

from pydantic_core import PydanticCustomError

from fleet.journal.events import Cluster, Done, Epoch, Failed, Observer, Paused, Session, Started, Stopped
from fleet.journal.journal import read_journal
from fleet.scheduling.model.rates import RateCurve
from fleet.search import Change, Decision, Record, Search
from fleet.search.journalled import Journalled, JournalledTrial, journalled, section_of
from fleet.search.of_spec import rule_of
from fleet.simulator.traces.reading import JOURNAL, read_run
from fleet.simulator.traces.table import TraceError
from fleet.simulator.traces.trace import TraceJob
from fleet.spec import SearchSpec
from fleet.spec.search import Stopping
from preprocess.files.reading import read_json


class Lineages:
    """Folded from the decisions of a search, in their order.

    A lineage is a digest of the last copy that a trial took: when, from whom, with which values, and the lineage of
    what it took. That of a trial that has only its own weights is empty, whatever its segments are.

    Args:
        decisions: the first ones.
    """

    def __init__(self, decisions: Iterable[Decision] = ()) -> None:
        self._copies: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)  # trial -> epochs by then, lineage
        self._taken = 0
        self.follow(list(decisions))

    def follow(self, decisions: list[Decision]) -> None:
        """Take those of a growing list that were not there the last time."""
        for decision in decisions[self._taken :]:
            copy = decision.copy
            if copy is not None:
                told = [copy.donor, copy.epoch, self.of(copy.donor, copy.epoch), decision.start, copy.values]
                digest = hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=16).hexdigest()
                self._copies[decision.trial].append((decision.start, digest))
        self._taken = len(decisions)

    def of(self, trial: int, epoch: int) -> str:
        """The lineage of the weights that a trial has once it has trained so many epochs."""
        copies = self._copies.get(trial, [])
        return next((lineage for start, lineage in reversed(copies) if start < epoch), "")


_LEARNS_NOTHING = ("random", "grid", "qmc")


@dataclass(frozen=True)
class Known:
    """What is known of a trial after some epochs.

    Attributes:
        value: of the metric; None: it failed, or nobody knows.
        missing: how many of the epochs until there nobody has trained.
        trained: how many were, or would be, trained until there: a trial that fails or stops early trains fewer.
        further: the further metrics then, where the search has several and there is a value.
    """

    value: float | None
    missing: int
    trained: int
    further: tuple[float, ...] = ()


@dataclass(frozen=True)
class RecordedSearch:
    """A search that a run carried out, as far as it came.

    Attributes:
        name: the run's, for people.
        section: what was asked for, with the bounds of the last start.
        told: what the journal says of it.
        jobs: trial's job -> that job as a trace has it; those that never were part of the run are missing.
        curves: trial's job -> its rate curve, samples/s.
        policy: the run's last one, and its parameters.
        overhead: seconds that a trial loses whenever it is given devices: to form its group, evaluate, save and leave.
        seed: the search's; None: an older version wrote the journal, which does not say it.
    """

    name: str
    section: SearchSpec
    told: Journalled
    jobs: Mapping[str, TraceJob]
    curves: Mapping[str, RateCurve]
    policy: tuple[str, Mapping[str, Any]]
    overhead: float = 0.0
    seed: int | None = None

    @property
    def learns(self) -> bool:
        """Whether its sampler learns, so that under another rule it would have suggested other trials."""
        return self.section.sampler.name not in _LEARNS_NOTHING

    @cached_property
    def is_over(self) -> bool:
        """Whether its hours ended it, or all that was decided has its result."""
        if self.told.bounds[-1].over:
            return True
        begun = {one.trial: one.end for one in self.told.decisions if one.kind in ("start", "resume")}
        return bool(begun) and all(end in self.told.trials[trial].results for trial, end in begun.items())

    @cached_property
    def lineages(self) -> Lineages:
        """Whose weights its trials had."""
        return Lineages(self.told.decisions)

    def known(self, trial: int, epoch: int, lineages: Lineages) -> Known:
        """What the trial has come to after so many epochs, as far as anybody trained them.

        Args:
            lineages: whose weights trials have where that is asked; of others nothing is known.
        """
        one = self.told.trials[trial]
        values = self._values(one, epoch) if lineages.of(trial, epoch) == self.lineages.of(trial, epoch) else None
        if values is not None:
            return Known(values[0] if values else None, 0, max(1, min(epoch, _last(one))), values[1:])
        same = (each for each in one.metrics if lineages.of(trial, each) == self.lineages.of(trial, each))
        return Known(None, epoch - max((each for each in same if each < epoch), default=0), epoch)

    def _values(self, one: JournalledTrial, epoch: int) -> tuple[float, ...] | None:
        """The values of the metrics; () if it has none, None if nobody knows.

        A trial that has failed, or is done, stays so.
        """
        if epoch in one.results:
            value = one.results[epoch]
            return () if value is None else (value, *one.further.get(epoch, ()))
        if epoch in one.metrics:
            return self._of_row(one.metrics[epoch])
        if one.failed is not None and epoch > one.failed:
            return ()
        if one.done is not None and epoch > one.done:
            return self._values(one, one.done) or ()
        return None

    def _of_row(self, row: Mapping[str, float]) -> tuple[float, ...]:
        """The values of an epoch's metrics; () where one of them is missing."""
        names = (self.told.metric, *(name for name, _ in self.told.further))
        return tuple(row[name] for name in names) if all(name in row for name in names) else ()


def read_search(run: Path) -> RecordedSearch:
    """Read the directory of a run with a search.

    Raises:
        TraceError: it holds none that has begun, or one of which other rules cannot be played.
    """
    journal = run / JOURNAL
    events = list(read_journal(journal))
    if not events:
        raise TraceError.of(run, f"there is no run: {JOURNAL} is missing or empty", "name the --out of a `fleet run`")
    told = journalled(events)
    try:
        kept = read_json(run / "spec.json")
        section = section_of(kept, told)
    except (OSError, ValueError) as error:
        raise TraceError.of(run, f"its spec cannot be read: {error}", "name the directory of a whole run") from error
    if section is None or not told.trials:
        raise TraceError.of(run, "this run has no search that has begun", "simulate its jobs: fleet simulate --run")
    trace = read_run(journal)
    jobs = {job.name: job for job in trace.jobs}
    epochs = _Epochs(jobs)
    for event in events:
        epochs.take(event)
    session = next((event for event in reversed(events) if isinstance(event, Session)), Session())
    used = session.policy or "flotilla", dict(session.policy_parameters)
    seed = session.search_seed if section.seed is None else section.seed
    curves = {**trace.curves, **epochs.curves()}
    return RecordedSearch(run.resolve().name, section, told, jobs, curves, used, epochs.overhead(), seed)


class _Epochs(Observer):
    """What epochs took, and groups beside them."""

    def __init__(self, jobs: Mapping[str, TraceJob]) -> None:
        self._jobs, self._per_node = jobs, 1
        self._seconds: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._begun: dict[str, float] = {}  # job -> when its devices were its own, plus its epochs since
        self._lost: list[float] = []

    def curves(self) -> dict[str, RateCurve]:
        """Rates of whole epochs, waits and evaluation included; these tell more than what was measured before."""
        return {
            job: RateCurve(
                {count: epoch_samples(self._jobs[job]) / fmean(took) for count, took in sorted(measured.items())},
                self._per_node,
                workers=self._jobs[job].workers,
            )
            for job, measured in self._seconds.items()
        }

    def overhead(self) -> float:
        """The median time that groups held their devices beyond their epochs, of those that ended with an epoch."""
        return median(self._lost) if self._lost else 0.0

    def on_session(self, event: Session) -> None:
        self._begun.clear()

    def on_cluster(self, event: Cluster) -> None:
        self._per_node = max(event.devices_per_node, default=1)

    def on_started(self, event: Started) -> None:
        self._begun[event.job] = event.t - event.seconds

    def on_epoch(self, event: Epoch) -> None:
        if event.job in self._jobs and event.seconds > 0:
            self._seconds[event.job][len(event.devices)].append(event.seconds)
        if event.job in self._begun:
            self._begun[event.job] += event.seconds

    def on_done(self, event: Done | Paused) -> None:
        if event.job in self._begun:
            self._lost.append(max(0.0, event.t - self._begun.pop(event.job)))

    on_paused = on_done

    def on_stopped(self, event: Stopped | Failed) -> None:
        self._begun.pop(event.job, None)

    on_failed = on_stopped


def epoch_samples(job: TraceJob) -> float:
    """Samples of one epoch."""
    return (job.samples or 0.0) / (job.epochs or 1.0)


def _last(one: JournalledTrial) -> int:
    """The last epoch of which a trial trains anything, whatever it is told to."""
    ends = [end + (end == one.failed) for end in (one.failed, one.done) if end is not None]
    return min(ends, default=2**62)


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
        rule_of(section, record.seed or 0),
        _Suggested(record),
        lambda trial, values: costs[trial],
        asked.width,
        trials,
        asked.epochs,
        [record.told.maximise, *(more for _, more in record.told.further)],
        asked.trials,
    )
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
