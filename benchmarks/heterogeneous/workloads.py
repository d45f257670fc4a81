"""Sia's workloads, what the authors' simulator made of them, and ours."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.papers.sia_machine import SiaMachine, SiaRates, read_sia_rates
from benchmarks.simulated.part import published
from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.jobs import JobState
from fleet.simulator.comparing.settings import read_cluster
from fleet.simulator.machines.machine import Adapting
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import Trace, read_trace
from fleet.simulator.traces.trace import TraceJob
from fleet.spec.policies import policy

HOUR = 3600.0
MIXED = "6x4:aws,2x8:dgx-ext,3x8:rtx"
"""The authors' cluster: 24 T4, 16 A100, 24 2080Ti."""
ALIKE = "16x4:aws"
MOVE = 2.0
"""Seconds of a move in place."""
SATURN = tuple(f"saturn-{number}" for number in range(1, 6))
WORKLOADS = (*SATURN, "philly-1", "newtrace-1")
ABSENT = "Sia's workloads are not there; FLEET_TRACES names the folder that holds traces/sia"


@dataclass(frozen=True)
class Theirs:
    """What the authors' simulator made of a workload: hours, and seconds of each job from coming to done."""

    mean: float
    p99: float
    makespan: float
    jct: dict[str, float]


def folder() -> Path | None:
    """Where the data are; None: they are not there."""
    return published("traces/sia")


def workloads(name: str) -> tuple[str, ...]:
    """All workloads of a trace that are there."""
    found = folder()
    assert found is not None, ABSENT
    return tuple(sorted(file.stem.replace("workload", name) for file in (found / "workloads" / name).glob("*.csv")))


@cache
def rates() -> SiaRates:
    """The measured profiles."""
    found = folder()
    assert found is not None, ABSENT
    return read_sia_rates(found / "profiles")


def trace_of(workload: str) -> Trace:
    """The jobs, at the times of the file, on which the authors' rounds depend."""
    found = folder()
    assert found is not None, ABSENT
    name, number = workload.rsplit("-", 1)
    trace = read_trace(found / "workloads" / name / f"workload-{number}.csv")
    return replace(trace, jobs=trace.jobs.shifted(trace.offset), offset=0.0)


@cache
def theirs(policy_name: str, workload: str) -> Theirs:
    """The reference output."""
    found = folder()
    assert found is not None, ABSENT
    told = json.loads((found / "reference" / f"{policy_name}-{workload}.json").read_text(encoding="utf-8"))
    with (found / "reference" / f"{policy_name}-{workload}.jobs.csv").open(encoding="utf-8", newline="") as file:
        jct = {row["name"]: float(row["complete_s"]) - float(row["submit_s"]) for row in csv.DictReader(file)}
    return Theirs(told["avg_jct_h"], told["p99_jct_h"], told["makespan_h"], jct)


@cache
def played(
    policy_name: str, workload: str, shape: str = MIXED, parameters: tuple[tuple[str, object], ...] = ()
) -> SimulationOutcome:
    """A workload under a policy, in our simulator; each once."""
    machine = SiaMachine(read_cluster(shape), rates())
    return Simulation(trace_of(workload), machine, policy(policy_name, **dict(parameters))).run()


class InPlace(SiaMachine):
    """Jobs that go to other devices in place: what costs `MOVE` seconds, wherever they go, once they have trained."""

    def under(self, adapting: Adapting) -> InPlace:
        """As `SiaMachine.under`."""
        return InPlace(self._cluster, self._rates, self._costs, adapting)

    def arriving(self, job: TraceJob) -> JobState:
        """As `SiaMachine.arriving`; policies count with moves."""
        return super().arriving(job).changed(restart=MOVE)

    def delay(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `SiaMachine.delay`."""
        return MOVE if job.attained else super().delay(job, devices)


@cache
def moved_in_place(
    policy_name: str, workload: str, parameters: tuple[tuple[str, object], ...] = ()
) -> SimulationOutcome:
    """As `played`, with moves in place."""
    machine = InPlace(read_cluster(MIXED), rates())
    return Simulation(trace_of(workload), machine, policy(policy_name, **dict(parameters))).run()


def hours(outcome: SimulationOutcome) -> tuple[float, float, float]:
    """Mean and 99th percentile of the completion times, and the makespan, hours."""
    jct = outcome.jct
    return float(jct.mean()) / HOUR, float(np.percentile(jct, 99)) / HOUR, outcome.makespan / HOUR


def differences(outcome: SimulationOutcome, reference: Theirs) -> Floats:
    """By how much each job's completion time differs from theirs, as a part of it; shape (jobs,)."""
    ours = dict(zip(outcome.names, (outcome.end - outcome.arrival).tolist()))
    found: Floats = np.array([abs(ours[name] / seconds - 1) for name, seconds in reference.jct.items()])
    return found
