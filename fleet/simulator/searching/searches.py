"""Recorded searches side by side: under other rules, widths and policies, on other devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.policies.wrappers import LeastLaxity
from fleet.search import Search
from fleet.simulator.books import BadPlan, SimulatedBooks
from fleet.simulator.comparing.cases import Case
from fleet.simulator.comparing.cluster_shape import read_cluster
from fleet.simulator.comparing.comparison import SimulationFailed
from fleet.simulator.comparing.workload import cluster_of_run
from fleet.simulator.machines.machine import Costs, MeasuredMachine, RunRates
from fleet.simulator.premises import Premises
from fleet.simulator.searching.recorded_search import RecordedSearch
from fleet.simulator.searching.replay import AskedSearch, as_recorded, replayed
from fleet.simulator.searching.rules import label_of
from fleet.simulator.searching.searched_jobs import Arrived, SearchedJobs
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces.columns import JobColumns
from fleet.simulator.traces.trace import Trace
from fleet.spec.policies import chosen_policy
from fleet.spec.search import Stopping
from preprocess.files.modules import importable


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
    record: RecordedSearch, stopping: Sequence[Stopping], widths: Sequence[int], policies: Sequence[Case],
    clusters: Sequence[Cluster], trials: int | None = None, epochs: int | None = None,
) -> tuple[SearchCase, ...]:  # fmt: skip
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
        chosen = LeastLaxity(chosen_policy(case.policy.policy, **case.policy.parameters))
    try:
        books = Simulation(trace, machine, chosen, premises=Premises(case.policy.seed)).play()
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
