"""Figures of an outcome: against hand computed cases, brute force and each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.commands.simulated_report import time_means
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.machine import Costs, MeasuredMachine, Rates
from fleet.simulator.machines.rate_tables import RateTable
from fleet.simulator.outcome import SimulationOutcome, finish_time_fairness
from fleet.simulator.simulation import NodeFailure, Simulation
from fleet.simulator.traces import JobColumns, Trace, TraceJob
from fleet.spec.policies import policy
from tests.simulator.support.small_traces import clusters, traces

RATES = RateTable({("m", 10): {1: 1.0, 2: 1.5, 4: 2.0}})


def simulate(
    jobs: list[TraceJob], cluster: Cluster, rates: Rates | None = RATES, costs: Costs | None = None, **more: object
) -> SimulationOutcome:
    trace = Trace.of(JobColumns.from_jobs(jobs))
    return Simulation(trace, MeasuredMachine(cluster, rates, costs), policy("fifo"), **more).run()  # type: ignore[arg-type]


def job(name: str, arrival: float, devices: int, work: float, **others: object) -> TraceJob:
    return TraceJob(name, arrival, devices, model="m", batch_size=10, work=work, **others)  # type: ignore[arg-type]


def test_cluster_efficiency_by_hand() -> None:
    # 0 to 10 s: four devices at a throughput of 2.0 / 1.0; 10 to 20 s: two at 1.5 / 1.0. ElasticFlow, Eq. 8.
    outcome = simulate([job("a", 0, 4, 20), job("b", 0, 2, 15)], Cluster((4,)))
    assert outcome.makespan == pytest.approx(20)
    assert outcome.cluster_efficiency == pytest.approx((2.0 / 4 * 10 + 1.5 / 4 * 10) / 20)
    assert outcome.utilisation == pytest.approx((4 * 10 + 2 * 10) / 80)
    assert outcome.timeline.speedup.tolist() == pytest.approx([2.0, 1.5, 0.0])


def test_moves_train_nothing_and_lower_the_efficiency() -> None:
    outcome = simulate([job("a", 0, 4, 20)], Cluster((4,)), costs=Costs(start=10))
    assert outcome.utilisation == pytest.approx(1) and outcome.cluster_efficiency == pytest.approx(0.25)


def test_queue_and_waiting_devices_by_hand() -> None:
    # b and c wait until a ends at 10 s; then both run, one device each, for 5 s and 15 s.
    outcome = simulate([job("a", 0, 2, 15), job("b", 0, 1, 5), job("c", 5, 1, 15)], Cluster((2,)))
    assert outcome.makespan == pytest.approx(25)
    assert outcome.queue == pytest.approx((1 * 5 + 2 * 5) / 25)
    assert sorted(outcome.idle.tolist()) == pytest.approx([0, 10])
    told = outcome.summary()
    assert (told["avg_idle"], told["max_idle"]) == (pytest.approx(5), pytest.approx(10))
    assert told["avg_queue"] == pytest.approx(told["avg_wait"] * 3 / 25), "Little's law"


def test_a_dropped_job_keeps_its_service_and_counts() -> None:
    outcome = simulate([job("a", 0, 1, 5), job("b", 0, 9, 5)], Cluster((4,)))
    told = outcome.summary()
    assert (told["dropped"], told["drop_ratio"], told["finished"]) == (1, 0.5, 1)
    assert outcome.service[1] == 0 and math.isnan(outcome.fairness[1])


def test_restarts_are_counted_by_job() -> None:
    outcome = simulate(
        [job("a", 0, 1, 10), job("b", 0, 1, 10)], Cluster((1, 1)), failures=[NodeFailure(4.0, 0, until=5.0)]
    )
    assert sorted(outcome.restarts.tolist()) == [0, 1] and outcome.summary()["restarts_per_job"] == 0.5


def test_fairness_by_hand() -> None:
    # Both are there for 30 s on 4 devices: a share is 2 devices. a took 10 s, b 20 s.
    curve = RateCurve({1: 10, 2: 15, 4: 20}, 4)
    arrival, end, samples = np.zeros(2), np.array([10.0, 20.0]), np.array([150.0, 150.0])
    rho = finish_time_fairness(arrival, end, samples, [curve, curve], np.array([4, 4]), 4)
    # a: N = 2, so M / N = 2 devices, 150 / 15 = 10 s. b: N = (10 + 20) / 20 = 1.5, so 2 devices again.
    assert rho.tolist() == pytest.approx([1.0, 2.0])
    capped = finish_time_fairness(arrival, end, samples, [curve, curve], np.array([1, 1]), 4)
    assert capped.tolist() == pytest.approx([10 / 15, 20 / 15]), "a share is no more than a job can use"


@given(traces(), clusters)
@settings(max_examples=30)
def test_fairness_agrees_with_counting_who_was_there(trace: Trace, cluster: Cluster) -> None:
    outcome = Simulation(trace, MeasuredMachine(cluster, None), policy("fifo")).run()
    done = np.flatnonzero(outcome.finished)
    begin, end = outcome.arrival[done], outcome.end[done]
    for row, since, until in zip(done.tolist(), begin.tolist(), end.tolist()):
        both = np.minimum(end, until) - np.maximum(begin, since)
        others = max(1.0, float(both[both > 0].sum()) / (until - since))
        least, most = (max(1, math.floor(cluster.size / others * (1 + sign * 1e-9))) for sign in (-1, 1))
        work = float(trace.jobs.duration[row] * trace.jobs.devices[row])
        expected = [(until - since) / (work / share) for share in (least, most)]
        assert min(abs(outcome.fairness[row] - value) for value in expected) < 1e-6 * max(expected)


@given(traces(), clusters, st.sampled_from([0.0, 2.0]))
@settings(max_examples=30)
def test_efficiency_is_utilisation_where_rates_are_linear_and_moves_are_free(
    trace: Trace, cluster: Cluster, cost: float
) -> None:
    outcome = Simulation(trace, MeasuredMachine(cluster, None, Costs(cost, cost)), policy("fifo")).run()
    if cost == 0:
        assert outcome.cluster_efficiency == pytest.approx(outcome.utilisation)
    assert outcome.cluster_efficiency <= outcome.utilisation * (1 + 1e-9)
    assert outcome.held.sum() == pytest.approx(np.nansum(outcome.service))
    assert (outcome.idle >= 0).all() and outcome.timeline.speedup[-1] == 0


@given(st.lists(st.tuples(st.floats(0.01, 50), st.integers(0, 9)), min_size=1, max_size=30), st.integers(1, 40))
def test_means_over_time_keep_the_area(steps: list[tuple[float, int]], points: int) -> None:
    times = np.concatenate(([0.0], np.cumsum([width for width, _ in steps])))
    values = np.array([value for _, value in steps] + [0])
    _, means = time_means(times, values, float(times[-1]), points)
    area = sum(width * value for width, value in steps)
    assert means.sum() * times[-1] / points == pytest.approx(area, abs=1e-6)
    assert means.min() >= values.min() - 1e-6 and means.max() <= values.max() + 1e-6
