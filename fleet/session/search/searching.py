"""A search that goes on: people and the clock steer it, it is told results, and its decisions are carried out.

Trials whose values another one had before are answered from its results: equal values come to equal bits. They take
their virtual slots and count among trials and epochs as all do, so that no decision depends on it. A trial whose twin
is not to train as far trains by itself after all.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

from fleet.coordination.coordinator import dropped_by
from fleet.coordination.job_record import JobRecord, Standing
from fleet.coordination.live_state import Recorder
from fleet.journal import events
from fleet.journal.run_requests import OwnTrial, SearchRequests, StopRequests
from fleet.report import wording
from fleet.search import Decision, Search, Segment
from fleet.search.space import check_one_metric, check_values
from fleet.session.search.ahead import Ahead, Files, Limits, Retention
from fleet.session.search.inheriting import DamagedCopies, Inheriting
from fleet.session.search.recorded import CLOCK, SPEC, WISH, Bounds, Recorded, own_trial_change
from fleet.session.search.trial_values import TrialJobs, Values
from fleet.spec import EnsembleSpec, Job, SearchSpec
from fleet.spec.expansion import trial_name
from fleet.spec.search import share_of

SECONDS_BETWEEN_LOOKS = 1.0


class Steering:
    """Tells a search of other bounds, and of people's own trials, at its virtual time; the journal has it first.

    Args:
        section: of the spec.
        recorded: the search as the journal has it.
        books: of the run.
        wishes: what people left in the run directory.
        clock: seconds; wishes are looked for at most once in SECONDS_BETWEEN_LOOKS.
    """

    def __init__(
        self,
        section: SearchSpec,
        recorded: Recorded,
        books: Recorder,
        wishes: SearchRequests,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._section, self._search, self._journal, self._wishes = section, recorded.search, books.journal, wishes
        self._bounds, self._asked, self._clock = recorded.bounds, recorded.asked, clock
        self._taken = set(recorded.wishes)
        self._own: dict[int, events.OwnTrial] = dict(recorded.own_trials)
        self._refused: set[int] = set()
        self._looked = -float("inf")

    @property
    def is_over(self) -> bool:
        """Whether the search's hours are over."""
        return self._bounds is not None and self._bounds.over

    def begin(self) -> bool:
        """Let the search go by the bounds of the spec where they are others than at the last start; whether a search
        that was over by the clock goes on.
        """
        asked, was_over = Bounds.of(self._section), self.is_over
        bounds = asked if self._bounds is None or asked != self._asked else self._bounds
        self._go_by(bounds.at(self._journal.seconds()), SPEC)
        return was_over and not self.is_over

    def look(self) -> None:
        """Take in what people wish, at most once a second, and end the search where its hours are over."""
        if self._clock() - self._looked < SECONDS_BETWEEN_LOOKS:
            return
        self._looked = self._clock()
        assert self._bounds is not None, "it has begun"
        for number, wish in self._wishes.changes().items():
            if number not in self._taken:
                self._taken.add(number)
                self._go_by(self._bounds.changed(wish).at(self._journal.seconds()), WISH, number)
        for trial in self._wishes.trials():
            self._take(trial)
        self._go_by(self._bounds.at(self._journal.seconds()), CLOCK)

    def _go_by(self, bounds: Bounds, by: str, wish: int | None = None) -> None:
        """Let the search go by bounds, if they are others; a wish is written down in any case."""
        if bounds == self._bounds and wish is None:
            return
        at = self._search.clock
        first, *further = (
            events.SearchedMetric(metric, "max" if more else "min")
            for metric, more in zip(self._section.metrics, self._section.maximises)
        )
        self._journal.write(
            events.Bounds(
                time=at,
                **asdict(bounds),
                metric=first.metric,
                mode=first.mode,
                by=by,
                wish=wish,
                further=tuple(further),
            )
        )
        self._search.changed(bounds.change(at))
        self._bounds = bounds

    def _take(self, trial: OwnTrial) -> None:
        """Tell the search how a person's trial stands, if it does not know."""
        known = self._own.get(trial.number)
        if trial.number in self._refused or (known is not None and known.status == trial.status):
            return
        try:
            check_values(self._section.over, trial.values)
            check_one_metric(self._section.metrics)
        except ValueError as error:  # of a file that somebody wrote by hand
            self._refused.add(trial.number)
            text = f"trial {trial.number} of somebody's own is left out: {error}"
            self._journal.write(events.Warned(text=text))
            return
        time, values = self._search.clock, dict(trial.values)
        told = events.OwnTrial(trial=trial.number, time=time, values=values, status=trial.status, value=trial.value)
        self._own[trial.number] = self._journal.write(told)
        self._search.changed(own_trial_change(told, self._section))

    def to_json(self) -> list[dict[str, Any]]:
        """What run.json says of trials that people train."""
        return [
            {"number": number, "values": told.values, "status": told.status, "value": told.value}
            for number, told in sorted(self._own.items())
        ]


class Twins:
    """Finds, for each trial, the first one with the same values.

    Args:
        search: whose trials.
        spec: of the run; with determinism D0 bits do not repeat, and members of a population change their values.
        job: the record of a trial's job; None: it has none.
    """

    def __init__(self, search: Search, spec: EnsembleSpec, job: Callable[[int], JobRecord | None]) -> None:
        assert spec.search is not None
        self._search, self._job = search, job
        self._are = spec.determinism.level != "D0" and spec.search.stopping.name != "population"
        self._first: dict[str, int] = {}
        self._of: list[int] = []  # by trial, the first with its values

    def of(self, trial: int) -> int | None:
        """The trial that answers for one; None: it trains by itself."""
        first = self._first_of(trial) if self._are else trial
        return None if first == trial or self._job(trial) is not None else first

    def _first_of(self, trial: int) -> int:
        for number in range(len(self._of), trial + 1):
            key = json.dumps(dict(self._search.values(number)), sort_keys=True)
            self._of.append(self._first.setdefault(key, number))
        return self._of[trial]

    def reaches(self, twin: int, epoch: int) -> bool:
        """Whether a trial has trained for so long, or ended before, or is about to."""
        job = self._job(twin)
        if job is not None and (job.epoch >= epoch or job.status in ("done", "failed")):
            return True
        return any(each.trial == twin and each.end >= epoch for each in self._search.needed())

    def told(self, trial: int, name: Callable[[int], str]) -> dict[str, Any]:
        """What run.json says of who answered for a trial."""
        twin = self.of(trial)
        return {} if twin is None else {"same_as": name(twin)}


Admit = Callable[[Job], str]
"""Makes a job part of the run; returns why it cannot be, "" if it is."""


class Searching:
    """A search that goes on.

    Its results and its decisions are written into the journal, the results first: from them alone the next session
    finds the search where it stands. What the trials come to may be told in any order; it changes no decision.

    Args:
        spec: of the run; its search's.
        recorded: the search as the journal has it.
        books: of the run.
        values: what the trials' epochs came to.
        steering: says how far it goes.
        files: of the run.
        jobs: of its trials.
    """

    def __init__(
        self,
        spec: EnsembleSpec,
        recorded: Recorded,
        books: Recorder,
        values: Values,
        steering: Steering,
        files: Files,
        jobs: TrialJobs,
    ) -> None:
        self._jobs, self._spec = jobs, spec
        self._search, self._books, self._values = recorded.search, books, values
        self._recorded, self._steering = recorded, steering
        self._written, self._pruned = recorded.written, set(recorded.pruned)
        self._told_front = list(recorded.front)
        self._seen: object = None
        self._looked = -math.inf  # the last look
        self._further: dict[str, int] = {}  # epochs that may follow on what trains, by job
        assert spec.search is not None
        self._section, self._names = spec.search, dict[int, str]()
        share = share_of(spec.search.ahead)
        limits = Limits(
            paused=share > 0 and spec.checkpoints.best is None,  # else in vain could be the best
            fresh=share > 0 and spec.search.most_epochs is None,
            share=share,
            sure=spec.search.budget is None,
        )
        self._ahead = Ahead(
            self._search, books, self._name, files, limits, recorded.beyond, recorded.sure, recorded.unused
        )
        self._twins = Twins(self._search, spec, lambda trial: books.state.jobs.get(self._name(trial)))
        self._retention = Retention(self._search, books, self._name, files, spec.checkpoints.keep)
        is_population = spec.search.stopping.name == "population"
        self._inheriting = Inheriting(self._name, files.folder) if is_population else None
        self._copies = DamagedCopies(books, self._inheriting, self._name, files) if self._inheriting else None

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to decide."""
        return self._search.is_over

    @property
    def stopped(self) -> frozenset[str]:
        """Names of trials that are paused for good, as the search wants no more of them."""
        return frozenset(self._pruned & self._books.state.jobs.keys())

    @property
    def is_stuck(self) -> bool:
        """Whether it waits for a trial that the run's policy will never train."""
        jobs = (self._books.state.jobs.get(self._name(segment.trial)) for segment in self._search.needed())
        return any(job is not None and self._is_dropped(job) for job in jobs)

    def _is_dropped(self, job: JobRecord) -> bool:
        """Whether the policy will never train a job; that depends on devices, so that it is no result."""
        return job.status == "failed" and (job.error or "").startswith(dropped_by(self._spec.policy.name))

    def mend_copies(self) -> dict[str, Standing]:
        """Copy again weights from which members of a population went on, and which are damaged; see `DamagedCopies`."""
        return {} if self._copies is None else self._copies.mend(self._search.decisions[: self._written])

    def begin(self) -> None:
        """Take trials that failed as failed, and let the search go by the bounds of the spec; write down new ones."""
        for failed in self._recorded.failed.values():
            self._books.state.take(failed)
        self._ahead.begin()
        if self._copies is not None:
            self._copies.tell()
        if self._steering.begin():
            self._pruned.clear()  # what its hours ended goes on

    def halted(self) -> frozenset[str]:
        """Names of trials whose training ends where they are: the hours of the search are over, or nobody wants it."""
        unwanted = frozenset(self._ahead.unwanted)
        if not self._steering.is_over:
            return unwanted
        needed = {segment.trial for segment in self._search.needed()}
        names = [self._name(trial) for trial in range(self._search.begun) if trial not in needed]
        jobs = [job for name in names if (job := self._books.state.jobs.get(name)) is not None]
        return unwanted | {job.name for job in jobs if _is_unfinished(job)}

    def look(self, admit: Admit, in_memory: Callable[[], bool]) -> None:
        """Tell what trials have come to since, and carry out what follows from it, until nothing does.

        Args:
            admit: makes a trial's job part of the run.
            in_memory: has jobs saved that are in memory alone; whether there still are such.
        """
        self._steering.look()
        if not self._has_news():
            return
        self._carry_out(admit)
        while self._tell_all():
            self._carry_out(admit)
        self.settle(in_memory)
        if not self.is_stuck:
            self._ahead.look(lambda trial: self._twins.of(trial) is None and not self._made(trial, admit))
        self._note_further()

    def _note_further(self) -> None:
        """Let the policy know on which trials more may follow that the search's end may wait for."""
        ledger, found = self._books.state, dict[str, int]()
        if self._search.in_tail(ledger.cluster.size):
            under_way = (*self._search.needed(), *self._ahead.sure)
            found = {self._name(segment.trial): self._search.further(segment) for segment in under_way}
        for name in found.keys() | self._further.keys():
            if found.get(name, 0) != self._further.get(name, 0) and name in ledger.jobs:
                job = ledger.jobs[name]
                state = job.state.changed(further=found.get(name, 0))
                self._books.note(ledger.added, replace(job, state=state))
        self._further = found

    def _has_news(self) -> bool:
        """Whether anything has happened since the last look that may lead to more; as a net, once a second all has."""
        ledger, now = self._books.state, self._books.journal.seconds()
        seen = (ledger.jobs.news, len(self._search.decisions), self._search.is_over, ledger.lost_devices)
        if seen == self._seen and now < self._looked + SECONDS_BETWEEN_LOOKS:
            return False
        self._seen, self._looked = seen, now
        return True

    def settle(self, in_memory: Callable[[], bool]) -> None:
        """Take back what was trained for nothing, and tell of which trials the search wants no more; see `look`."""
        for trial in self._ahead.take_back(in_memory):
            if self._search.status(trial) == "stopped":
                self._prune(trial)
        if self._search.is_over:
            self._prune_the_rest()
            self._write_front()
            if self._inheriting is not None and not self._steering.is_over:
                self._inheriting.over(self._search.begun)
        self._retention.look(self._pruned, self._ahead.is_beyond)

    @property
    def unused(self) -> int:
        """Epochs that were trained ahead and taken back."""
        return self._ahead.unused

    def _tell_all(self) -> bool:
        """Tell what trials have come to; whether there was anything."""
        told = [self._tell(segment) for segment in (*self._search.needed(), *self._ahead.segments)]
        return any(told)

    def _tell(self, segment: Segment) -> bool:
        """Tell the result of a segment, if there is one."""
        name, twin = self._name(segment.trial), self._twins.of(segment.trial)
        teller = segment.trial if twin is None else twin
        job = self._books.state.jobs.get(self._name(teller))
        if job is not None and (self._is_dropped(job) or not _has_come(job, segment, twin is not None)):
            return False
        values = None if job is None else self._values_of(teller, job, segment.end)
        if self._inheriting is not None and values is not None:
            self._inheriting.told(segment.trial, segment.end)
        value, further = (None, ()) if values is None else (values[0], tuple(values[1:]))
        self._books.record(
            events.Result(job=name, trial=segment.trial, epoch=segment.end, value=value, further=further)
        )
        self._search.tell(segment.trial, segment.end, value, further)
        self._ahead.told()
        return True

    def _values_of(self, trial: int, job: JobRecord, epoch: int) -> tuple[float, ...] | None:
        """What a trial came to after so many epochs; None where it failed before."""
        if job.status == "failed" and job.epoch < epoch:
            return None
        return self._values.of(job.name, trial, min(epoch, job.epoch))

    def _carry_out(self, admit: Admit) -> None:
        """Write down the decisions that are new, and do what they say."""
        while self._written < len(self._search.decisions):
            decision = self._search.decisions[self._written]
            name = self._name(decision.trial)
            if decision.kind in ("start", "resume") and name not in self._books.state.jobs:
                self._begin(decision, admit)
            if decision.kind == "resume":
                self._retention.resumed(decision.trial)
            if self._inheriting is not None:
                self._inheriting.carry_out(decision)
            self._write(name, decision)
            self._written += 1
            self._ahead.decided(decision.trial)
            if decision.kind in ("start", "resume"):
                self._pruned.discard(name)
                self._ahead.wanted(decision.trial)
            elif decision.kind == "stop":
                self._prune(decision.trial)
            elif decision.kind == "fail":
                self._fail(name, decision.end)

    def _begin(self, decision: Decision, admit: Admit) -> None:
        """Make a trial's job part of the run, unless another one with its values answers for it."""
        twin = self._twins.of(decision.trial)
        if twin is None or not self._twins.reaches(twin, decision.end):
            self._admit(decision.trial, admit)
        elif decision.kind == "start":
            self._books.record(events.Twin(job=self._name(decision.trial), trial=decision.trial, of=self._name(twin)))

    def _write(self, name: str, one: Decision) -> None:
        self._books.record(self._recorded.told(one, name))

    def _admit(self, trial: int, admit: Admit) -> None:
        """Make a trial's job part of the run; one that cannot be has failed."""
        if why := self._made(trial, admit):
            self._write_failure(self._name(trial), 0, why)

    def _made(self, trial: int, admit: Admit) -> str:
        """Make a trial's job part of the run; returns why it cannot be, "" if it is."""
        try:
            job = self._jobs.of(trial, self._search.values(trial))
        except ValueError as error:
            return str(error)
        return admit(job)

    def _fail(self, name: str, epoch: int) -> None:
        """A trial without a value has failed, if its code has not."""
        job = self._books.state.jobs.get(name)
        if job is not None and job.status != "failed":
            metrics = " or its ".join(self._values.metrics)
            self._write_failure(name, job.epoch, f"its {metrics} is not a finite number after epoch {epoch}")

    def _write_failure(self, name: str, epoch: int, error: str) -> None:
        self._books.record(events.Failed(job=name, epoch=epoch, error=error))

    def _write_front(self) -> None:
        """Tell the Pareto front at the search's end, once."""
        if self._front and self._front != self._told_front:
            self._told_front = self._front
            self._books.journal.write(events.Front(time=self._search.clock, jobs=tuple(self._front)))

    def _prune_the_rest(self) -> None:
        for trial in range(self._search.begun):
            if self._search.status(trial) == "stopped":
                self._prune(trial)

    def _prune(self, trial: int) -> None:
        """Tell that the search wants no more of a trial, once nothing of it is left to take back."""
        name = self._name(trial)
        job = None if self._ahead.is_beyond(trial) else self._books.state.jobs.get(name)
        if self._twins.of(trial) is not None and name not in self._pruned:
            self._pruned.add(name)
            self._books.record(events.Pruned(job=name, epoch=self._search.outcome(trial).epochs))
        if job is not None and job.is_paused and job.status == "pending" and name not in self._pruned:
            self._pruned.add(name)
            self._books.record(events.Pruned(job=name, epoch=job.epoch))

    def _name(self, trial: int) -> str:
        if trial not in self._names:
            self._names[trial] = trial_name(self._section.name, trial, self._search.values(trial))
        return self._names[trial]

    @property
    def told(self) -> str:
        """How the search stands, in a sentence for people."""
        best, metric = self._search.best(), self._values.metrics[0]
        found = "no trial has a value" if best is None else f"the best is {self._name(best[0])}, {metric} {best[1]:.6g}"
        over = "over" if self._search.is_over else "not over"
        told = f"search: {over} after {wording.plural(self._search.begun, 'trial')}; {found}"
        if self._front:
            told += f"; no trial is better in all of {', '.join(self._values.metrics)} than {', '.join(self._front)}"
        return told + (f"; {wording.plural(self.unused, 'epoch')} trained for nothing" if self.unused else "")

    @property
    def _front(self) -> list[str]:
        """Names of the trials on the Pareto front; none where there is one metric."""
        return [self._name(trial) for trial in self._search.front()] if len(self._values.metrics) > 1 else []

    def to_json(self) -> dict[str, Any]:
        """What run.json says of the search."""
        outcomes = (self._search.outcome(trial) for trial in range(self._search.begun))
        best, several = self._search.best(), len(self._values.metrics) > 1
        latest = {each.trial: each.copy.values for each in self._search.decisions if each.copy is not None}
        return {
            "over": self._search.is_over,
            "trials": [
                {
                    "name": self._name(one.trial),
                    "values": dict(one.values),
                    "status": one.status,
                    "epochs": one.epochs,
                    "value": one.value,
                    **({"latest_values": dict(latest[one.trial])} if one.trial in latest else {}),
                    **({"further": list(one.further)} if several else {}),
                    **self._twins.told(one.trial, self._name),
                }
                for one in outcomes
            ],
            "decisions": self._search.digest(),
            "best": None if best is None else self._name(best[0]),
            "best_value": None if best is None else best[1],
            **({"front": self._front} if several else {}),
            "own_trials": self._steering.to_json(),
        }


def _has_come(job: JobRecord, segment: Segment, of_twin: bool) -> bool:
    """Whether a trial's job, or its twin's, has come to the end of the segment, or to its own."""
    if of_twin and job.epoch >= segment.end:
        return True
    paused = job.status == "pending" and job.is_paused and job.epoch >= segment.end
    return paused or job.status in ("done", "failed")


def _is_unfinished(job: JobRecord) -> bool:
    """Whether a trial's job has not come to the end of its segment."""
    return job.status not in ("done", "failed") and not job.is_paused


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
