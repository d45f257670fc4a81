"""A simulated trace keeps the laws of any machine, whatever the policy, and gives the same result each time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.policy import BadPlan, Plan, State, Trigger
from fleet.simulator.machines.machine import Costs, MeasuredMachine
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import NodeFailure, Simulation
from fleet.simulator.traces import JobColumns, Trace, TraceJob
from fleet.spec.policies import policy
from tests.simulator.support.small_traces import Watched, clusters, traces

SIMULATED = (
    "fifo",
    "flotilla",
    "local",
    "homogeneous",
    "baseline",
    "tiresias",
    "throughput",
    "easyscale",
    "gandiva",
    "deadline",
    "malleable",
    "edf",
    "edf-admission",
    "optimus",
    "pollux",
    "themis",
    "chronus",
    "elasticflow",
    "elasticflow-slot",
    "sharing",
)


def simulate(
    trace: Trace, cluster: Cluster, chosen: object, costs: Costs | None = None, **more: object
) -> SimulationOutcome:
    machine = MeasuredMachine(cluster, None, costs)
    return Simulation(trace, machine, chosen, **more).run()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SIMULATED)
@given(trace=traces(), cluster=clusters)
@settings(max_examples=40)
def test_the_laws_of_any_machine(name: str, trace: Trace, cluster: Cluster) -> None:
    watched = Watched(policy(name))
    outcome = simulate(trace, cluster, watched)
    done = outcome.finished
    assert not (done & outcome.dropped).any()
    fits = trace.jobs.devices <= cluster.size
    assert done[fits & ~outcome.dropped].all(), "whoever is not dropped is done in the end"
    assert (outcome.begin[done] >= outcome.arrival[done]).all()
    # Rates are linear and moves cost nothing: so much work is so many device-seconds, however it was cut.
    work = trace.jobs.duration * trace.jobs.devices
    np.testing.assert_allclose(outcome.service[done], work[done], rtol=1e-6)
    used = outcome.timeline.used
    assert (used >= 0).all() and (used <= cluster.size).all() and (np.diff(outcome.timeline.times) >= 0).all()
    assert outcome.makespan * cluster.size >= work[done].sum() * (1 - 1e-9)


@pytest.mark.parametrize("name", SIMULATED)
@given(trace=traces(), cluster=clusters, cost=st.sampled_from([0.0, 2.0]))
@settings(max_examples=20)
def test_the_same_again_and_without_the_memo(name: str, trace: Trace, cluster: Cluster, cost: float) -> None:
    runs = [
        simulate(trace, cluster, Watched(policy(name), forgetful), Costs(cost, cost))
        for forgetful in (False, False, True)
    ]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].end, other.end)
        np.testing.assert_array_equal(runs[0].restarts, other.restarts)


def of(*jobs: TraceJob) -> Trace:
    return Trace.of(JobColumns.from_jobs(jobs))


def test_fifo_by_hand() -> None:
    trace = of(
        TraceJob("a", 0, 2, duration=10), TraceJob("b", 1, 4, duration=5), TraceJob("c", 2, 1, duration=3),
        TraceJob("d", 3, 9, duration=1),
    )  # fmt: skip
    strict, backfilled = (simulate(trace, Cluster((4,)), policy("fifo", backfill=b)) for b in (False, True))
    assert strict.end[:3].tolist() == [10, 15, 18] and strict.dropped.tolist() == [False, False, False, True]
    assert backfilled.end[:3].tolist() == [10, 15, 5]
    assert strict.summary()["finished"] == 3 and strict.summary()["gpu_hours"] == pytest.approx(43 / 3600)


def test_moving_costs_what_it_was_said_to_cost() -> None:
    failing = [NodeFailure(4.0, 0, until=5.0)]
    trace = of(TraceJob("a", 0, 1, duration=10))
    outcome = simulate(trace, Cluster((1,)), policy("fifo"), Costs(start=1, restart=3), failures=failing)
    assert outcome.end.tolist() == [pytest.approx(5 + 3 + 7)]  # 3 s trained before the failure
    assert outcome.restarts.tolist() == [1]


def test_a_node_that_never_comes_back_leaves_the_job_undone() -> None:
    outcome = simulate(
        of(TraceJob("a", 0, 1, duration=10)), Cluster((1,)), policy("fifo"), failures=[NodeFailure(4.0, 0)]
    )
    assert outcome.finished.tolist() == [False] and outcome.summary()["finished"] == 0


class Careless:
    """Gives a device twice."""

    name, shares_streams, trigger = "careless", False, Trigger()

    def plan(self, state: State) -> Plan:
        return Plan({job.name: (0,) for job in state.jobs})


class Sleepless:
    """Wants to be woken again and again."""

    name, shares_streams, trigger = "sleepless", False, Trigger()

    def plan(self, state: State) -> Plan:
        return Plan(wake=state.time + 1)


def test_bad_plans_are_named() -> None:
    trace = of(TraceJob("a", 0, 1, duration=10), TraceJob("b", 0, 1, duration=10))
    with pytest.raises(BadPlan, match=r"job b is given devices \(0,\), of which some are not free"):
        simulate(trace, Cluster((2,)), Careless())
    with pytest.raises(BadPlan, match="policy sleepless asks to be woken again and again"):
        simulate(trace, Cluster((2,)), Sleepless())


def test_an_interval_gathers_what_happens() -> None:
    class Slow(Watched):
        @property
        def trigger(self) -> Trigger:
            return Trigger(interval=60)

    slow = Slow(policy("fifo"))
    outcome = simulate(of(TraceJob("a", 0, 1, duration=10), TraceJob("b", 7, 1, duration=60)), Cluster((1,)), slow)
    assert outcome.end.tolist() == [10, 120] and len(slow.plans) == 3
