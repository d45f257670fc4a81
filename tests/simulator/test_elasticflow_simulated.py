"""ElasticFlow in simulations: promises are kept whatever comes, and published traces give the published figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.elasticflow.buddy import BuddyTree
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.simulator.machines.machine import Costs, MeasuredMachine
from fleet.simulator.machines.rate_tables import read_rates
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import NodeFailure, Simulation
from fleet.simulator.traces import JobColumns, Trace, TraceJob, read_trace
from fleet.spec.policies import policy
from tests.scheduling.support.blocks import is_block
from tests.simulator.support.published import published
from tests.simulator.support.scaling_traces import RATES, scaling_clusters, scaling_traces
from tests.simulator.support.small_traces import Watched

SLOTS = st.sampled_from([1.0, 7.0, 10.0, 60.0])


def simulate(
    trace: Trace,
    cluster: Cluster,
    costs: Costs,
    *failures: NodeFailure,
    name: str = "elasticflow",
    **parameters: object,
) -> tuple[SimulationOutcome, Watched]:
    watched = Watched(policy(name, **parameters))
    return Simulation(trace, MeasuredMachine(cluster, RATES, costs), watched, failures).run(), watched


@given(trace=scaling_traces(), cluster=scaling_clusters, restart=st.sampled_from([0.0, 3.0, 17.0]), slot=SLOTS)
@settings(max_examples=20)
def test_without_admission_all_jobs_are_done_and_none_is_refused(
    trace: Trace, cluster: Cluster, restart: float, slot: float
) -> None:
    outcome, watched = simulate(trace, cluster, Costs(0.0, restart), slot=slot, admission=False)
    assert outcome.finished.all() and not outcome.dropped.any()
    assert not any(plan.admitted or plan.late for plan in watched.plans)


@pytest.mark.parametrize("name", ["elasticflow", "elasticflow-slot"])
@given(
    trace=scaling_traces(),
    cluster=scaling_clusters,
    costs=st.builds(Costs, st.sampled_from([0.0, 1.0, 5.0]), st.sampled_from([0.0, 0.5, 3.0, 17.0])),
    slot=SLOTS,
)
@settings(max_examples=10)
def test_no_admitted_job_is_late_whatever_comes_and_whatever_moving_takes(
    name: str, trace: Trace, cluster: Cluster, costs: Costs, slot: float
) -> None:
    outcome, watched = simulate(trace, cluster, costs, name=name, slot=slot)
    assert outcome.late_admitted == 0
    assert outcome.finished[~outcome.dropped].all()
    assert not (outcome.dropped & ~np.isfinite(outcome.deadline)).any()
    sizes = {len(devices) for plan in watched.plans for devices in plan.allocation.values()}
    assert all(size & (size - 1) == 0 for size in sizes)


@given(trace=scaling_traces(), each=st.sampled_from([1, 2, 4, 8]), nodes=st.sampled_from([1, 2, 4]), slot=SLOTS)
@settings(max_examples=30)
def test_every_job_is_on_an_aligned_block_where_moving_is_free(
    trace: Trace, each: int, nodes: int, slot: float
) -> None:
    cluster = Cluster((each,) * nodes)
    tree = BuddyTree(cluster)
    _, watched = simulate(trace, cluster, Costs(), slot=slot)
    assert all(is_block(tree, devices) for plan in watched.plans for devices in plan.allocation.values())


@given(trace=scaling_traces(), cluster=scaling_clusters, restart=st.sampled_from([0.0, 3.0]), slot=SLOTS)
@settings(max_examples=25)
def test_the_same_again_and_without_the_memo(trace: Trace, cluster: Cluster, restart: float, slot: float) -> None:
    machine = MeasuredMachine(cluster, RATES, Costs(restart, restart))
    runs = [
        Simulation(trace, machine, Watched(policy("elasticflow", slot=slot), forgetful)).run()
        for forgetful in (False, False, True)
    ]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].end, other.end)
        np.testing.assert_array_equal(runs[0].restarts, other.restarts)
        np.testing.assert_array_equal(runs[0].dropped, other.dropped)


@given(
    trace=scaling_traces(deadlines=True),
    each=st.sampled_from([1, 2, 4]),
    begin=st.floats(0, 300),
    lasts=st.floats(1, 300),
    node=st.integers(0, 2),
)
@settings(max_examples=30)
def test_a_reserve_of_a_node_keeps_all_promises_while_a_node_fails(
    trace: Trace, each: int, begin: float, lasts: float, node: int
) -> None:
    failure = NodeFailure(begin, node, begin + lasts)
    outcome, _ = simulate(trace, Cluster((each,) * 3), Costs(), failure, slot=10.0, reserve=each)
    assert outcome.late_admitted == 0 and outcome.finished[~outcome.dropped].all()


@given(trace=scaling_traces(deadlines=True), begin=st.floats(0, 300), lasts=st.floats(1, 300))
@settings(max_examples=5)
def test_without_a_reserve_a_failure_may_cost_deadlines_but_no_job(trace: Trace, begin: float, lasts: float) -> None:
    for restart in (0.0, 3.0):
        failures = NodeFailure(begin, 0, begin + lasts), NodeFailure(begin + 5, 1, begin + 5 + lasts)
        outcome, _ = simulate(trace, Cluster((4, 4)), Costs(0, restart), *failures, slot=10.0)
        assert outcome.finished[~outcome.dropped].all()


def test_a_job_alone_runs_on_all_that_helps_it() -> None:
    job = TraceJob("a", 0, 1, model="peaked", batch_size=32, work=35, samples=35 * 32, deadline=100)
    outcome, _ = simulate(Trace.of(JobColumns.from_jobs([job])), Cluster((8,)), Costs())
    assert outcome.end.tolist() == [10.0] and outcome.service.tolist() == [40.0]


SHAPES = {
    "195job": ("a100", (8,) * 16, 240),
    "elasticVpollux_e": ("t4", (4,) * 16, 60),
    "cluster10": ("a100", (8,) * 32, 60),
    "cluster01": ("a100", (8,) * 64, 60),
    "cluster06": ("a100", (8,) * 64, 60),
}


def play(trace: str, name: str = "elasticflow") -> SimulationOutcome:
    rates, nodes, slot = SHAPES[trace]
    machine = MeasuredMachine(Cluster(nodes), read_rates(published(f"measurements/elasticflow_{rates}")))
    jobs = read_trace(published(f"traces/elasticflow/{trace}.csv"))
    return Simulation(jobs, machine, policy(name, slot=slot)).run()


@pytest.mark.parametrize(
    ("trace", "least"),
    [("195job", 0.89), ("elasticVpollux_e", 0.90), ("cluster10", 0.98), ("cluster01", 0.98), ("cluster06", 0.84)],
)
def test_published_traces_lose_no_promise_and_meet_more_deadlines(trace: str, least: float) -> None:
    outcome = play(trace)
    assert outcome.late_admitted == 0
    assert least <= outcome.deadline_ratio <= 1


@pytest.mark.parametrize(("trace", "theirs"), [("195job", 0.7487), ("elasticVpollux_e", 0.728), ("cluster10", 0.962)])
def test_all_of_a_slot_or_none_meets_about_as_many_as_the_authors_program(trace: str, theirs: float) -> None:
    outcome = play(trace, "elasticflow-slot")
    assert abs(outcome.deadline_ratio - theirs) <= 0.05 and outcome.late_admitted == 0


def test_restarts_that_take_time_cost_admissions_but_no_deadline() -> None:
    machine = MeasuredMachine(Cluster((8,) * 16), read_rates(published("measurements/elasticflow_a100")), Costs(30, 30))
    trace = read_trace(published("traces/elasticflow/195job.csv"))
    outcome = Simulation(trace, machine, policy("elasticflow")).run()
    assert outcome.late_admitted == 0 and outcome.deadline_ratio > 0.8
    assert math.isfinite(outcome.makespan)


class Tiring(MeasuredMachine):
    """A machine on which a job is half as fast once the first half of it is done."""

    def lasts(self, job: JobState) -> float:
        return math.inf if job.kind else job.remaining / 2

    def begun(self, job: JobState, devices: tuple[int, ...]) -> JobState:
        return job

    def advanced(self, job: JobState) -> JobState:
        return job.changed(rate=job.rate.scaled(0.5), kind="tired")


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_simulated_job_that_gets_slower_is_given_more_or_told_to_be_late_at_once(forgetful: bool) -> None:
    jobs = [
        TraceJob(name, 0.0, 1, duration=20.0, limit=limit, deadline=25.0)
        for name, limit in (("wide", 2), ("narrow", 1))
    ]
    late: dict[float, dict[str, float]] = {}
    outcome = Simulation(
        Trace.of(JobColumns.from_jobs(jobs)),
        Tiring(Cluster((2,)), None),
        Watched(policy("elasticflow", slot=1.0), forgetful),
        watch=lambda now, plan, running: late.update({now: dict(plan.late)} if plan.late else {}),
    ).run()
    # From 10 s on both train 0.5 samples/s on a device: wide is promised both devices for 6 of its last slots.
    assert min(late) == 10.0 and late[10.0] == {"narrow": pytest.approx(36.0)}
    assert outcome.end[0] <= 25.0 < outcome.end[1]
    assert all(told.keys() == {"narrow"} for told in late.values())
