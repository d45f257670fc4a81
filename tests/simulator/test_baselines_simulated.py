"""Schedulers that know nothing of deadlines, on ElasticFlow's trace and under stress."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.machine import Costs, MeasuredMachine
from fleet.simulator.machines.rate_tables import RateTable, read_rate_table
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import NodeFailure, Simulation
from fleet.simulator.traces import Synthetic, read_trace, synthetic_trace
from fleet.spec.policies import policy
from tests.simulator.support.published import published
from tests.simulator.support.small_traces import Watched

RATES = RateTable({("net", 64): {1: 10.0, 2: 19.0, 4: 36.0, 8: 66.0}})


def held(name: str, **parameters: Any) -> SimulationOutcome:
    trace = read_trace(published("traces/elasticflow/195job.csv"))
    machine = MeasuredMachine(Cluster((8,) * 16), read_rate_table(published("measurements/elasticflow_a100")))
    return Simulation(trace, machine, policy(name, **parameters)).run()


@pytest.mark.parametrize(("name", "theirs"), [("tiresias", 0.4615), ("gandiva", 0.241)])
def test_deadline_ratios_are_those_of_the_authors_program(name: str, theirs: float) -> None:
    assert held(name).deadline_ratio == pytest.approx(theirs, abs=0.05)


def test_what_gandiva_loses_it_loses_by_the_way_its_nodes_are_counted() -> None:
    assert held("gandiva", literal=False).deadline_ratio > 0.42


def stressed(name: str, forgetful: bool = False, **parameters: Any) -> SimulationOutcome:
    """More jobs than the cluster can train, in bursts, moves that cost something, and a node that fails."""
    trace = synthetic_trace(Synthetic(jobs=120, gap=400, arrivals="bursty", burst=20), RATES, seed=3)
    machine = MeasuredMachine(Cluster((8,) * 4), RATES, Costs(5.0, 20.0))
    failing = [NodeFailure(5_000.0, 1, until=9_000.0)]
    return Simulation(trace, machine, Watched(policy(name, **parameters), forgetful), failing).run()


@pytest.mark.parametrize(
    "parameters", [{}, {"promote": 1.0}, {"thresholds": (500.0, 3000.0, 20_000.0), "promote": 4.0}]
)
def test_tiresias_plans_the_same_from_its_queues_as_from_nothing(parameters: dict[str, Any]) -> None:
    kept, anew = (stressed("tiresias", forgetful, **parameters) for forgetful in (False, True))
    np.testing.assert_array_equal(kept.end, anew.end)
    np.testing.assert_array_equal(kept.restarts, anew.restarts)
    assert kept.finished.all() and kept.restarts.sum() > 20


@pytest.mark.parametrize("name", ["gandiva", "themis", "optimus", "pollux"])
def test_everybody_ends_under_stress(name: str) -> None:
    assert stressed(name).finished.all()


def test_least_attained_service_helps_the_short_ones() -> None:
    fifo, tiresias = stressed("fifo"), stressed("tiresias")
    short = fifo.service < np.median(fifo.service)
    waits = [float(np.mean((outcome.begin - outcome.arrival)[short])) for outcome in (fifo, tiresias)]
    assert waits[1] < 0.5 * waits[0]
