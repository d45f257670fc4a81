"""Deadlines that are met: ours, ElasticFlow, the baselines, and what nobody can exceed (ElasticFlow, ASPLOS'23, 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.simulated.part import Part, published
from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.machine import Costs, MeasuredMachine
from fleet.simulator.machines.rate_tables import RateTable, read_rate_table
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import Trace, read_trace
from fleet.spec.plugins import POLICIES
from fleet.spec.policies import policy

POINTS = 0.05
"""How far a deadline ratio may lie from the published one."""
WANTED = 0.91
SECONDS = {"195job": 10.0, "cluster01": 60.0}
"""Most wall seconds of a simulation under `deadline`."""
BASELINES = ("edf", "edf-admission", "chronus", "tiresias", "themis", "optimus", "fifo")
SLOW = "gandiva"
"""Another baseline; minutes of time slices, and on the other traces part of the measurements of the baselines."""
WITH_SLOW = ("cluster01", "cluster06")
THEIRS: dict[str, tuple[float, dict[str, Any]]] = {
    "edf": (0.087, {"interval": 240}),
    "edf-admission": (0.323, {"interval": 240}),
}
"""Deadline ratios of the authors' program on 195job, in slots of 240 s."""
CHRONUS = 0.749 / 1.62
"""The paper's Figure 6b: ElasticFlow's ratio over the gain that it reports."""
RESTART = 30.0
"""Seconds of a restart, where they cost something."""


@dataclass(frozen=True)
class Setting:
    """A trace, its rates and its cluster."""

    trace: str
    rates: str
    cluster: Cluster


FIRST = Setting("195job", "elasticflow_a100", Cluster((8,) * 16))
OTHERS = (
    Setting("elasticVpollux_e", "elasticflow_t4", Cluster((4,) * 16)),
    Setting("cluster01", "elasticflow_a100", Cluster((8,) * 64)),
    Setting("cluster06", "elasticflow_a100", Cluster((8,) * 64)),
    Setting("cluster10", "elasticflow_a100", Cluster((8,) * 32)),
)


def measure(part: Part, repetitions: int) -> None:
    """The deadline ratios side by side, the clairvoyant bound, and what restarts cost."""
    if _files(FIRST) is None:
        part.note("the traces of ElasticFlow are not there; FLEET_TRACES names the folder that holds them")
        return
    rows = []
    for setting in (FIRST, *OTHERS):
        if _files(setting) is None:
            part.note(f"{setting.trace} or its rates are not there")
            continue
        names = ("deadline", "elasticflow", *BASELINES, *([SLOW] if setting.trace in WITH_SLOW else []))
        outcomes = {name: _played(setting, name) for name in names if _known(name)}
        rows += [[setting.trace, name, *_figures(outcome)] for name, outcome in outcomes.items()]
        _compare(part, setting, outcomes)
    columns = ["trace", "policy", "deadline ratio", "admitted", "late admitted", "mean JCT, s", "restarts", "seconds"]
    part.table("deadlines met", columns, rows)
    _baselines(part)
    _bound(part)
    _restarts(part)


def _compare(part: Part, setting: Setting, outcomes: dict[str, SimulationOutcome]) -> None:
    ours, trace = outcomes["deadline"], setting.trace
    if setting is FIRST:
        part.bar(f"{trace}: deadline ratio", ours.deadline_ratio, f">= {WANTED}", ours.deadline_ratio >= WANTED)
    part.bar(f"{trace}: deadline, late admitted jobs", ours.late_admitted, "0", ours.late_admitted == 0)
    line = [name for name in ("deadline", "elasticflow") if name in outcomes]
    best = max((name for name in outcomes if name not in line), key=lambda name: outcomes[name].deadline_ratio)
    for better, worse in zip(line, [*line[1:], best]):
        low, high = outcomes[worse].deadline_ratio, outcomes[better].deadline_ratio
        part.bar(f"{trace}: {better} against {worse}", high, f">= {low:.3f}", high >= low)
    if trace in SECONDS:
        seconds = SECONDS[trace]
        part.bar(f"{trace}: deadline, seconds of simulation", ours.seconds, f"< {seconds:g}", ours.seconds < seconds)


def _baselines(part: Part) -> None:
    """The authors' figures again; and what their EDF gives away."""
    for name, (theirs, parameters) in THEIRS.items():
        ratio = _played(FIRST, name, parameters).deadline_ratio
        part.bar(f"195job: {name} in slots", ratio, f"{theirs} +- {POINTS}", abs(ratio - theirs) <= POINTS)
    ratio = _played(FIRST, "chronus").deadline_ratio
    part.bar("195job: chronus", ratio, f"{CHRONUS:.3f} +- {POINTS}", abs(ratio - CHRONUS) <= POINTS)
    peak = _played(FIRST, "edf", {"stop_at_peak": True}).deadline_ratio
    part.note(
        "edf as the authors' program has it gives each job the largest number of devices that was measured, though the "
        "paper says: as many as do not make it slower. Stopping at the peak, `stop_at_peak: true`, it meets "
        f"{peak:.3f} of the deadlines of 195job"
    )


def _bound(part: Part) -> None:
    try:
        from benchmarks.simulated.clairvoyant import clairvoyant_bound
    except ModuleNotFoundError as error:
        part.note(f"the clairvoyant bound needs {error.name}: pip install 'fleet-hpc[test]'")
        return
    trace, machine = _read(FIRST)
    jobs = [machine.arriving(trace.jobs[row]) for row in range(len(trace))]
    found = clairvoyant_bound([job for job in jobs if job.deadline < math.inf], FIRST.cluster.size)
    ours = _played(FIRST, "deadline").deadline_ratio
    part.bar("195job: clairvoyant bound", found.ratio, f">= {ours:.3f}, what deadline meets", found.ratio >= ours)
    part.note(
        f"195job: with all arrivals known at most {found.most} of {found.jobs} deadlines are met, {found.ratio:.3f}; "
        f"{found.met} by a plan with fluid devices; {found.possible} jobs could meet theirs alone"
    )


def _restarts(part: Part) -> None:
    """What is promised where each move costs time."""
    rows = []
    for name in ("deadline", "elasticflow"):
        if _known(name):
            trace, machine = _read(FIRST, Costs(RESTART, RESTART))
            outcome = Simulation(trace, machine, policy(name)).run()
            rows.append([name, *_figures(outcome)])
            if name == "deadline":
                late = outcome.late_admitted
                part.bar(f"195job, {RESTART:g} s a restart: deadline, late admitted jobs", late, "0", late == 0)
    columns = ["policy", "deadline ratio", "admitted", "late admitted", "mean JCT, s", "restarts", "seconds"]
    part.table(f"195job where a restart costs {RESTART:g} s", columns, rows)


def _known(name: str) -> bool:
    return name in POLICIES.built_in


def _files(setting: Setting) -> tuple[Path, Path] | None:
    trace, rates = published(f"traces/elasticflow/{setting.trace}.csv"), published(f"measurements/{setting.rates}")
    return None if trace is None or rates is None else (trace, rates)


def _read(setting: Setting, costs: Costs | None = None) -> tuple[Trace, MeasuredMachine]:
    files = _files(setting)
    if files is None:
        raise FileNotFoundError(f"{setting.trace} or its rates are not there")
    rates: RateTable = read_rate_table(files[1])
    return read_trace(files[0]), MeasuredMachine(setting.cluster, rates, costs)


def _played(setting: Setting, name: str, parameters: dict[str, Any] | None = None) -> SimulationOutcome:
    trace, machine = _read(setting)
    return Simulation(trace, machine, policy(name, **(parameters or {}))).run()


def _figures(outcome: SimulationOutcome) -> list[Any]:
    told = outcome.summary()
    names = ("deadline_ratio", "admitted", "late_admitted", "avg_jct", "restarts", "seconds")
    return [round(told[name], 4) if told[name] is not None else None for name in names]
