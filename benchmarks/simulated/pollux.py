"""Pollux, Optimus and Tiresias on Pollux' workload, where goodput is the pace (OSDI'21, 5.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.papers.pollux_machine import PolluxMachine, read_pollux_rates
from benchmarks.simulated.part import Part, published
from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.machine import Costs
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import read_trace
from fleet.spec.policies import policy

CLUSTER = Cluster((4,) * 16)
RESTART = 30.0
"""Seconds that their simulator takes for any change of devices, the first one too."""
PARTS = 0.1
"""How far a mean may lie from theirs, as a part of it."""


@dataclass(frozen=True)
class Compared:
    """A policy as they run it, and the mean JCT that their simulator gives, seconds."""

    name: str
    theirs: float | None = None
    parameters: dict[str, Any] = field(default_factory=dict)


COMPARED = (
    Compared("pollux", 2446.13),
    Compared("tiresias", 3469.69, {"thresholds": (16 * 3600.0,)}),
    Compared("optimus", 5301.88, {"interval": 60.0}),
    Compared("themis"),
    Compared("fifo"),
)


def measure(part: Part, repetitions: int) -> None:
    """Mean completion times beside those of the authors' simulator."""
    trace, rates = published("traces/pollux/workload-6.csv"), published("measurements/pollux_osdi21")
    if trace is None or rates is None:
        part.note("the workload of Pollux is not there; FLEET_TRACES names the folder that holds it")
        return
    jobs, machine = read_trace(trace), PolluxMachine(CLUSTER, read_pollux_rates(rates), Costs(RESTART, RESTART))
    rows = []
    for compared in COMPARED:
        told = Simulation(jobs, machine, policy(compared.name, **compared.parameters)).run().summary()
        mean, theirs = told["avg_jct"], compared.theirs
        if theirs is not None:
            low, high = theirs * (1 - PARTS), theirs * (1 + PARTS)
            part.bar(f"workload-6 {compared.name}: mean JCT, s", mean, f"{low:.0f} to {high:.0f}", low <= mean <= high)
        rows.append(
            [compared.name, round(mean), "" if theirs is None else round(theirs), round(told["p99_jct"]),
             round(told["makespan"]), told["restarts"], round(told["gpu_hours"]), round(told["seconds"], 1)]
        )  # fmt: skip
    columns = ["policy", "mean JCT, s", "theirs", "p99 JCT, s", "makespan, s", "restarts", "GPU-hours", "seconds"]
    part.table("Pollux' workload-6 on 16 x 4 devices", columns, rows)
