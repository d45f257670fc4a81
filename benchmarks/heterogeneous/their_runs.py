"""What the authors' simulator gives beside the reference, with several solvers and orders of jobs; and ours with them.

Costs of Sia's program are rounded to hundredths, so plans often cost the same, and the solver takes one of them. So
each job can be held against theirs only where both have the same solver: that of their code, CBC.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.heterogeneous.cbc_program import Cbc
from benchmarks.heterogeneous.workloads import MIXED, rates, trace_of
from benchmarks.papers.sia import Sia, Solver
from benchmarks.papers.sia_machine import SiaMachine
from fleet.simulator.comparing.settings import read_cluster
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import Simulation

_RUNS = Path(__file__).with_name("their_runs.json")
"""Made with github.com/siasosp23/artifacts, commit aaf7a0d: numpy 1.26, scipy 1.12, cvxpy 1.5.4, cylp 0.94.1."""


@cache
def _told() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(_RUNS.read_text(encoding="utf-8"))
    return told


def their_runs() -> dict[str, dict[str, dict[str, Any]]]:
    """Workload -> solver and order -> figures in `hours`, and seconds of each job from coming to done in `jct_s`."""
    runs: dict[str, dict[str, dict[str, Any]]] = _told()["runs"]
    return runs


def their_ends(workload: str) -> dict[str, int]:
    """The second at which each job ends with CBC, jobs in the order in which they came."""
    ends: dict[str, int] = _told()["cbc_ends"][workload]
    return ends


@cache
def solved_with(solver: Solver, workload: str) -> SimulationOutcome:
    """The workload under `sia` with this solver, in our simulator; each once."""
    kind = type("OtherwiseSolved", (Sia,), {"solver": solver})
    machine = SiaMachine(read_cluster(MIXED), rates())
    return Simulation(trace_of(workload), machine, kind()).run()


@cache
def solved_alike(workload: str) -> SimulationOutcome:
    """As theirs in `their_ends`: with CBC. ImportError: cylp is not installed."""
    return solved_with(Cbc(), workload)
