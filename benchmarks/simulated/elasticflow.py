"""ElasticFlow on the published traces and on a large machine: deadlines met, promises kept, how long plans take."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter

import numpy as np

from benchmarks.simulated.part import Part, published, uncollected
from fleet.scheduling import Policy
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.policy import Plan, State
from fleet.scheduling.policies.wrappers import WrappedPolicy
from fleet.simulator.machines.machine import MeasuredMachine
from fleet.simulator.machines.rate_tables import RateTable, read_rates
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import JobColumns, Trace, read_trace
from fleet.spec.policies import policy

SHAPES = {  # trace -> rates, nodes, and the seconds of a slot in the authors' scripts
    "195job": ("a100", (8,) * 16, 240),
    "elasticVpollux_e": ("t4", (4,) * 16, 60),
    "cluster10": ("a100", (8,) * 32, 60),
    "cluster01": ("a100", (8,) * 64, 60),
    "cluster06": ("a100", (8,) * 64, 60),
}
THEIRS = {"195job": 0.7487, "elasticVpollux_e": 0.728, "cluster10": 0.962}
"""Deadline ratios of the authors' program."""
LEAST, CLOSE = 0.89, 0.05
SECONDS = {"195job": 0.1, "cluster01": 5.0}
PLAN_SECONDS = 0.1
REPETITIONS = 7

JOBS = 10_000
LATER, GAP = 2_000, 4.0
"""Jobs that come after the first ones, and the mean seconds between two of them."""
PLANS = 300
LARGE = Cluster((8,) * 1250)
MEASURED = {
    ("large", 64): {1: 6.0, 2: 10.4, 4: 16.4, 8: 20.2, 16: 21.5},
    ("medium", 64): {1: 5.0, 2: 9.0, 4: 14.7, 8: 19.3, 16: 25.8, 32: 30.5},
    ("small", 64): {1: 6.0, 2: 8.6, 4: 10.3, 8: 11.0},
}
"""Steps/s of kinds of job that scale as those of the published tables do."""


def measure(part: Part, repetitions: int) -> None:
    """All traces that are there, and a steady state of 10,000 unfinished jobs on 10,000 devices."""
    rows = []
    for trace in SHAPES:
        outcomes = _played(trace, "elasticflow", repetitions or REPETITIONS if trace in SECONDS else 1)
        slots = _played(trace, "elasticflow-slot", 1)
        if not outcomes:
            part.note(f"{trace} or its rates are not there; set FLEET_TRACES to the folder of the published ones")
            continue
        _bars(part, trace, outcomes[0], slots[0], min(outcome.seconds for outcome in outcomes))
        rows += [_row(trace, outcome) for outcome in (outcomes[0], slots[0])]
    part.note(
        "simulations are timed with Python's garbage collector off, as timeit does; with it they take about 15 % more"
    )
    part.table("ElasticFlow", ["trace", "policy", "ratio", "met", "jobs", "late", "restarts", "plans", "seconds"], rows)
    _large(part)


def _played(trace: str, name: str, repetitions: int) -> list[SimulationOutcome]:
    rates, nodes, slot = SHAPES[trace]
    jobs, measured = published(f"traces/elasticflow/{trace}.csv"), published(f"measurements/elasticflow_{rates}")
    if jobs is None or measured is None:
        return []
    machine = MeasuredMachine(Cluster(nodes), read_rates(measured))
    read = read_trace(jobs)
    with uncollected():
        return [Simulation(read, machine, policy(name, slot=slot)).run() for _ in range(repetitions)]


def _bars(part: Part, trace: str, one: SimulationOutcome, together: SimulationOutcome, seconds: float) -> None:
    part.bar(f"{trace}: admitted jobs that elasticflow ends late", one.late_admitted, "0", one.late_admitted == 0)
    if trace == "195job":
        ratio = one.deadline_ratio
        part.bar(f"{trace}: deadline ratio of elasticflow", ratio, f">= {LEAST}", ratio >= LEAST)
    if trace in THEIRS:
        ratio, theirs = together.deadline_ratio, THEIRS[trace]
        name = f"{trace}: deadline ratio of elasticflow-slot"
        part.bar(name, ratio, f"{theirs} +- {CLOSE}, the authors' program", abs(ratio - theirs) <= CLOSE)
    if trace in SECONDS:
        most = SECONDS[trace]
        part.bar(f"{trace}: seconds of a simulation of elasticflow, best", seconds, f"< {most}", seconds < most)


def _row(trace: str, outcome: SimulationOutcome) -> list[object]:
    met, jobs, restarts = int(outcome.in_time.sum()), len(outcome.names), int(outcome.restarts.sum())
    plans = len(outcome.timeline.plan_seconds)
    return [
        trace, outcome.policy, round(outcome.deadline_ratio, 4), met, jobs, outcome.late_admitted, restarts, plans,
        round(outcome.seconds, 3),
    ]  # fmt: skip


def _large(part: Part) -> None:
    """The plans that are made while there are about as many unfinished jobs as at the begin."""
    watched = _Watched(policy("elasticflow"))
    with suppress(_Enough):
        Simulation(crowd(), MeasuredMachine(LARGE, RateTable(MEASURED)), watched).run()
    first, rest = watched.seconds[0], np.array(watched.seconds[1:])
    p99 = float(np.percentile(rest, 99))
    name = f"seconds of a plan with {JOBS:,} unfinished jobs on {LARGE.size:,} devices, 99th percentile"
    part.bar(name, p99, f"< {PLAN_SECONDS}", p99 < PLAN_SECONDS)
    part.note(
        f"{JOBS:,} jobs on {LARGE.size:,} devices: of {len(rest)} plans, with {watched.fewest:,} jobs or more, the "
        f"median takes {np.median(rest):.4f} s and the longest {rest.max():.3f} s; the first, when all come, "
        f"{first:.1f} s"
    )


class _Enough(Exception):
    """No further plan is of interest."""


class _Watched(WrappedPolicy):
    """A policy whose plans are timed, until PLANS of them are made."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.seconds: list[float] = []
        self.fewest = JOBS

    def plan(self, state: State) -> Plan:
        if len(self.seconds) > PLANS:
            raise _Enough
        begin = perf_counter()
        plan = self._policy.plan(state)
        self.seconds.append(perf_counter() - begin)
        self.fewest = min(self.fewest, len(state.by_name) - len(plan.dropped))
        return plan


def crowd(seed: int = 0) -> Trace:
    """JOBS jobs at once, and then LATER more, one every other few seconds; nine of ten have a deadline.

    Durations are drawn as the logarithm of a normal number around 11 hours on one device, deadlines at 0.5 to 1.5 of
    them, as in the paper (6.1).
    """
    draw, jobs = np.random.default_rng([seed, JOBS]), JOBS + LATER
    models = list(MEASURED)
    which = draw.integers(0, len(models), jobs)
    duration = np.exp(draw.normal(np.log(40_000), 1.0, jobs))
    arrival = np.concatenate((np.zeros(JOBS), np.sort(draw.uniform(0, LATER * GAP, LATER))))
    work = duration * np.array([MEASURED[model][1] for model in models])[which]
    deadline = arrival + duration * draw.uniform(0.5, 1.5, jobs)
    deadline[draw.uniform(size=jobs) < 0.1] = np.nan
    columns = JobColumns.of(
        name=[f"job-{i}" for i in range(jobs)], arrival=arrival, devices=np.ones(jobs, np.int64),
        model=[models[i][0] for i in which.tolist()], batch_size=np.full(jobs, 64.0), work=work, samples=work * 64,
        duration=duration, deadline=deadline,
    )  # fmt: skip
    return Trace.of(columns)
