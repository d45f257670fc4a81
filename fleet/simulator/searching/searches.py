"""A recorded search played again with other devices, another policy or another rule for stopping."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.policy import BadPlan
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.wrappers import LeastLaxity
from fleet.search import Search, Segment
from fleet.simulator.comparing.compared_policies import SimulationFailed
from fleet.simulator.comparing.settings import Case, read_cluster, read_settings
from fleet.simulator.comparing.workload import cluster_of_run
from fleet.simulator.machines.machine import Costs, MeasuredMachine, RunRates
from fleet.simulator.searching.recorded_search import (
    AskedSearch,
    Known,
    Lineages,
    RecordedSearch,
    as_recorded,
    epoch_samples,
    replayed,
)
from fleet.simulator.simulated_jobs import SimulatedBooks
from fleet.simulator.simulation import Simulation, SimulationConfig
from fleet.simulator.traces.trace import JobColumns, Trace, TraceJob
from fleet.spec.plugins import STOPPING_RULES
from fleet.spec.policies import policy
from fleet.spec.search import Stopping
from preprocess.files.modules import importable

_EXAMPLE = "halving:eta=3,rungs=1/3/9"


def stopping_of(text: str) -> Stopping:
    """The rule that a text names, with its keys as in a spec.

    Raises:
        ValueError: there is no such rule, or it has no such key or value.
    """
    name, colon, rest = text.partition(":")
    first, _, others = rest.partition(":")
    if name not in STOPPING_RULES.built_in and first and "=" not in first:  # the class of a `module:Name`
        name, colon, rest = f"{name}:{first}", others, others
    given = {key: _plain(key, value) for key, value in (read_settings(rest, _EXAMPLE) if colon else {}).items()}
    keys = {"arguments": given} if ":" in name else given
    try:
        return Stopping.model_validate({"name": name.strip(), **keys})
    except ValidationError as error:
        told = "; ".join(_problem(problem) for problem in error.errors())
        raise ValueError(f"--stopping {text}: {told}; write it as {_EXAMPLE}") from None


def label_of(stopping: Stopping) -> str:
    """Write a rule as `stopping_of` reads it, with the keys that are set."""
    keys = [
        f"{key}={_told(getattr(stopping, key))}"
        for key in type(stopping).model_fields
        if key in stopping.model_fields_set - {"name", "arguments"} and getattr(stopping, key) != _default(key)
    ]
    keys += [f"{key}={_told(value)}" for key, value in stopping.arguments.items()]
    return stopping.name + (":" + ",".join(keys) if keys else "")


def _plain(key: str, value: Any) -> Any:
    """Rungs are written with strokes between them."""
    if key != "rungs" or isinstance(value, list):
        return value
    parts = str(value).split("/")
    return [int(part) if part.strip().isdigit() else part for part in parts]


def _told(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "/".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _default(key: str) -> Any:
    return Stopping.model_fields[key].default


def _problem(problem: Any) -> str:
    where = ".".join(map(str, problem["loc"]))
    context = problem.get("ctx", {})
    more = "".join(f" ({context[key]})" for key in ("mend",) if key in context)
    return f"{where + ': ' if where else ''}{problem['msg']}{more}"


@dataclass(frozen=True)
class Arrived:
    """A result of a replayed search.

    Attributes:
        time: when it came, seconds.
        segment: of what.
        known: what it is.
    """

    time: float
    segment: Segment
    known: Known


class SearchedJobs:
    """As `ComingJobs`. A segment that somebody needs is a job; once it is done the search is told its result.

    Args:
        record: what the trials came to.
        search: that decides; it has just begun.
        devices: that train.
    """

    def __init__(self, record: RecordedSearch, search: Search, devices: int) -> None:
        self._record, self._search, self._devices = record, search, devices
        self._lineages = Lineages()
        self._waiting: deque[TraceJob] = deque()
        self._rows: list[Segment] = []
        self._issued: set[Segment] = set()
        self._open: dict[str, Segment] = {}  # jobs that have come and are not done
        self._known_further: dict[str, float] = {}  # of these
        self.curves: dict[str, RateCurve] = {}  # of jobs that have come
        self.results: list[Arrived] = []
        self._issue(0.0)

    @property
    def most(self) -> int:
        """See `ComingJobs`: each epoch of each trial a segment."""
        return len(self._record.told.trials) * self._record.section.epochs + 1

    @property
    def next(self) -> float:
        """See `ComingJobs`."""
        return self._waiting[0].arrival if self._waiting else math.inf

    def take(self) -> TraceJob:
        """See `ComingJobs`."""
        job = self._waiting.popleft()
        self._known_further[job.name] = job.further
        return job

    def ended(self, row: int, now: float) -> None:
        """See `ComingJobs`."""
        name = self._name(self._rows[row])
        del self._open[name], self._known_further[name]
        self._tell(self._rows[row], now)
        self._issue(now)

    def further(self) -> Mapping[str, float]:
        """See `ComingJobs`."""
        found = {name: self._further(self._open[name]) for name in self._known_further}
        changed = {name: epochs for name, epochs in found.items() if epochs != self._known_further[name]}
        self._known_further.update(changed)
        return changed

    def _issue(self, now: float) -> None:
        """Let come what is needed or will be in any case; what takes no time is told at once."""
        while new := [segment for segment in self._wanted() if segment not in self._issued]:
            instant = [segment for segment in new if not self._come(segment, now)]
            for segment in instant:
                self._tell(segment, now)

    def _wanted(self) -> tuple[Segment, ...]:
        return (*self._search.needed(), *self._search.sure(self._devices))

    def _come(self, segment: Segment, now: float) -> bool:
        """Make a job of a segment; False: there is nothing to train."""
        self._issued.add(segment)
        one = self._record.told.trials[segment.trial]
        job, curve = self._record.jobs.get(one.job), self._record.curves.get(one.job)
        epochs = self._known(segment).trained - segment.start
        if job is None or curve is None or epochs <= 0:
            return False
        name, samples = self._name(segment), epochs * epoch_samples(job)
        self._open[name] = segment
        self.curves[name] = curve
        self._rows.append(segment)
        self._waiting.append(
            replace(
                job,
                name=name,
                model=name,
                arrival=now,
                samples=samples,
                work=None,
                duration=None,
                deadline=None,
                epochs=float(epochs),
                stream="",
                line=None,
                further=self._further(segment),
            )
        )
        return True

    def _name(self, segment: Segment) -> str:
        return f"{self._record.told.trials[segment.trial].job} {segment.start}-{segment.end}"

    def _further(self, segment: Segment) -> int:
        """Epochs that may follow on a segment, where the end may wait for them."""
        return self._search.further(segment) if self._search.in_tail(self._devices) else 0

    def _tell(self, segment: Segment, now: float) -> None:
        known = self._known(segment)
        self.results.append(Arrived(now, segment, known))
        self._search.tell(segment.trial, segment.end, known.value, known.further)

    def _known(self, segment: Segment) -> Known:
        self._lineages.follow(self._search.decisions)
        return self._record.known(segment.trial, segment.end, self._lineages)


@dataclass(frozen=True)
class SearchCase:
    """One replay: what is asked for, under which policy, on which devices."""

    asked: AskedSearch
    policy: Case
    cluster: Cluster


@dataclass(frozen=True)
class Replayed:
    """What a replayed search came to.

    Attributes:
        case: how it was played.
        search: at its end.
        results: in the order in which they came.
        device_seconds: that its trials held.
        same: whether it decided as the recorded one did, as far as that came.
    """

    case: SearchCase
    search: Search
    results: tuple[Arrived, ...]
    device_seconds: float
    same: bool
    maximise: bool

    @property
    def seconds(self) -> float:
        """Until the last result."""
        return max((result.time for result in self.results), default=0.0)

    @property
    def missing(self) -> tuple[Arrived, ...]:
        """Results that nobody knows."""
        return tuple(result for result in self.results if result.known.missing)

    @property
    def best(self) -> Arrived | None:
        """The result that is best of the trials' last known ones; None: there is none."""
        last = {r.segment.trial: r for r in self.results if r.known.value is not None}
        for result in self.results:
            if result.known.value is None and not result.known.missing:
                last.pop(result.segment.trial, None)  # it failed
        sign = -1.0 if self.maximise else 1.0
        return min(last.values(), key=lambda r: (sign * (r.known.value or 0.0), r.segment.trial), default=None)


def clusters_of(run: Path, devices: Sequence[int], shape: str | None) -> list[Cluster]:
    """The cluster of a run, one of each number of devices, and the one of that shape.

    Raises:
        ValueError: the shape is none, or names kinds of device.
        TraceError: the run's journal does not say on which devices it trained.
    """
    wanted = [Cluster((number,)) for number in devices]
    wanted += [read_cluster(shape)] if shape else []
    if any(cluster.kinds for cluster in wanted):
        raise ValueError("--search knows no kinds of device; name a cluster without them, such as 4x8")
    return [cluster_of_run(run), *wanted]


def search_cases_of(
    record: RecordedSearch,
    stopping: Sequence[Stopping],
    widths: Sequence[int],
    policies: Sequence[Case],
    clusters: Sequence[Cluster],
    trials: int | None = None,
    epochs: int | None = None,
) -> tuple[SearchCase, ...]:
    """The search as it was, then everything that is asked for in all combinations.

    Args:
        policies, clusters: the first of each is the run's own.
    """
    same, bounds = as_recorded(record), record.told.bounds[-1]
    found = [SearchCase(same, policies[0], clusters[0])]
    others = (stopping or [same.stopping], widths or [bounds.width or 1], policies[1:] or policies[:1])
    for rule, width, chosen, cluster in product(*others, clusters[1:] or clusters[:1]):
        is_changed = bool(stopping or widths or trials or epochs)
        asked = AskedSearch(rule, width, trials or bounds.trials, epochs or bounds.epochs) if is_changed else same
        case = SearchCase(asked, chosen, cluster)
        if case not in found:
            found.append(case)
    return tuple(found)


def play(record: RecordedSearch, case: SearchCase, costs: Costs) -> Replayed:
    """Play one case.

    Raises:
        ValueError: its bounds or its rungs cannot be.
        SimulationFailed: the policy gave what cannot be given.
    """
    search = replayed(record, case.asked)
    jobs = SearchedJobs(record, search, case.cluster.size)
    trace = Trace(JobColumns.from_jobs(()), growing=jobs)
    machine = MeasuredMachine(case.cluster, RunRates(jobs.curves), costs)
    with importable([Path.cwd()]):
        chosen = LeastLaxity(policy(case.policy.policy, **case.policy.parameters))
    try:
        books = Simulation(trace, machine, chosen, config=SimulationConfig(case.policy.seed)).play()
    except BadPlan as error:
        raise SimulationFailed(f"{case.policy.label}: {error}") from error
    if not search.is_over:
        raise SimulationFailed(
            f"{case.policy.label} on {case.cluster.size} devices: the search waits for {_held_up(books)}, which the "
            "policy never trains; take another policy or more devices"
        )
    common = min(len(search.decisions), len(record.told.decisions))
    same = search.decisions[:common] == list(record.told.decisions[:common]) and common == len(record.told.decisions)
    held = float(np.nansum(books.service))
    return Replayed(case, search, tuple(jobs.results), held, same, record.told.maximise)


def _held_up(books: SimulatedBooks) -> str:
    dropped = [name for name, is_dropped in zip(books.names, books.dropped.tolist()) if is_dropped]
    return ", ".join([*books.unfinished, *dropped][:3]) or "nothing"


def replay_json(record: RecordedSearch, one: Replayed) -> dict[str, Any]:
    """What `--json` says of a case."""
    best, missing = one.best, one.missing
    trial = None if best is None else best.segment.trial
    statuses = [one.search.status(number) for number in range(one.search.begun)]
    return {
        "stopping": label_of(one.case.asked.stopping),
        "width": one.case.asked.width,
        "policy": one.case.policy.policy,
        "parameters": dict(one.case.policy.parameters),
        "devices": one.case.cluster.size,
        "best": None if trial is None else record.told.trials[trial].job,
        "best_value": None if best is None else best.known.value,
        "best_epochs": None if best is None else best.segment.end,
        **({"front": [record.told.trials[each].job for each in one.search.front()]} if record.told.further else {}),
        "best_seconds": None if best is None else best.time,
        "makespan": one.seconds,
        "device_hours": one.device_seconds / 3600,
        "trials": one.search.begun,
        "done": statuses.count("done"),
        "epochs": sum(d.end - d.start for d in one.search.decisions if d.kind in ("start", "resume")),
        "missing_trials": len({result.segment.trial for result in missing}),
        "missing_epochs": sum(_missing_by_trial(one).values()),
        "known_seconds": min((result.time for result in missing), default=one.seconds),
        "as_recorded": one.same,
        "decisions": one.search.digest(),
    }


def _missing_by_trial(one: Replayed) -> dict[int, int]:
    """Trial -> epochs that it would train and nobody has."""
    return {r.segment.trial: r.known.missing for r in one.missing}
