"""The schedulers of ElasticFlow's figures by the names that the paper gives them, and fleet's policies for them."""

from __future__ import annotations

from typing import Any

from benchmarks.simulated.part import published
from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.machine import Costs, MeasuredMachine
from fleet.simulator.machines.rate_tables import RateTable, read_rate_table
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import Trace
from fleet.spec.policies import policy

SLOT = 240
"""Seconds between two plans of the authors' program in these figures."""
OURS = "ElasticFlow"
SCHEDULERS: dict[str, tuple[str, dict[str, Any]]] = {
    "EDF": ("edf", {"interval": SLOT}),
    "EDF + Admission Control": ("edf-admission", {"interval": SLOT}),
    "EDF + Elastic Scaling": ("elasticflow-slot", {"slot": SLOT, "admission": False}),
    "Gandiva": ("gandiva", {}),
    "Tiresias": ("tiresias", {}),
    "Themis": ("themis", {}),
    "Chronus": ("chronus", {}),
    "ElasticFlow in slots": ("elasticflow-slot", {"slot": SLOT}),
    OURS: ("elasticflow", {"slot": SLOT}),
}


def a100_rates() -> RateTable | None:
    """The published steps/s on A100s; None where they are not there."""
    folder = published("measurements/elasticflow_a100")
    return None if folder is None else read_rate_table(folder)


def played(scheduler: str, trace: Trace, rates: RateTable, nodes: int, costs: Costs | None = None) -> SimulationOutcome:
    """A trace under a scheduler, on so many nodes of 8 devices."""
    name, parameters = SCHEDULERS[scheduler]
    return Simulation(trace, MeasuredMachine(Cluster((8,) * nodes), rates, costs), policy(name, **parameters)).run()
