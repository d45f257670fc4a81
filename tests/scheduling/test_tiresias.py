"""Tiresias: who has had little goes first, and who preempts whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy

CURVE = RateCurve({1: 1.0, 8: 8.0}, per_node=4)


def job(name: str, gang: int = 1, **more: float) -> JobState:
    return JobState(name, CURVE, 8, gang=gang, **more)  # type: ignore[arg-type]


def asked(
    *jobs: JobState, running: Mapping[str, tuple[int, ...]], now: float, devices: int = 4, **parameters: object
) -> Plan:
    held = [replace(job, held=len(running.get(job.name, ()))) for job in jobs]
    return policy("tiresias", **parameters).plan(State.of(Cluster((devices,)), held, running, time=now))


def test_a_new_job_takes_the_devices_of_one_that_has_had_more() -> None:
    plan = asked(job("old", 4, attained=3250), job("new", 2, arrival=9), running={"old": (0, 1, 2, 3)}, now=10)
    assert (plan.stopped, plan.allocation) == (("old",), {"new": (0, 1)})


def test_nobody_preempts_in_his_own_queue() -> None:
    plan = asked(job("old", 4, attained=3000), job("new", 2, arrival=9), running={"old": (0, 1, 2, 3)}, now=10)
    assert (plan.stopped, plan.allocation) == ((), {})
    assert plan.wake == pytest.approx(250 / 4), "then it goes down to the second queue, and the new job may run"


def test_service_counts_from_when_a_job_got_its_devices() -> None:
    old = job("old", 4, attained=3000, since=100)
    for now, stopped in ((100 + 62.4, ()), (100 + 62.5, ("old",))):
        assert asked(old, job("new"), running={"old": (0, 1, 2, 3)}, now=now).stopped == stopped


def test_the_last_of_the_last_queue_stops_first() -> None:
    running = {"first": (0,), "second": (1,), "much": (2,), "little": (3,)}
    jobs = [
        job("first", attained=4000, since=1), job("second", attained=4000, since=2), job("much", attained=9000),
        job("little", since=3),
    ]  # fmt: skip
    for gang, stopped in ((1, {"much"}), (2, {"much", "second"}), (3, {"much", "second", "first"}), (4, set())):
        plan = asked(*jobs, job("new", gang), running=running, now=5)
        assert set(plan.stopped) == stopped
        assert set(plan.allocation) == ({"new"} if stopped else set())


def test_who_comes_down_into_a_queue_stands_before_who_begins_there_later() -> None:
    running = {"down": (0, 1), "begun": (2, 3)}
    jobs = [job("down", 2, since=0.0), job("begun", 2, attained=4000, since=1700)]
    assert asked(*jobs, job("new", 2), running=running, now=1800).stopped == ("begun",), "down came at 1,625 s"
    assert asked(replace(jobs[0], since=100), jobs[1], job("new", 2), running=running, now=1800).stopped == ("down",)


def test_a_job_that_does_not_fit_lets_the_next_one_pass() -> None:
    plan = asked(job("runs", 3), job("large", 2), job("small", 1, arrival=1), running={"runs": (0, 1, 2)}, now=2)
    assert plan.allocation == {"small": (3,)}


def test_what_a_large_victim_leaves_goes_to_a_small_one() -> None:
    running = {"large": (0, 1, 2), "small": (3,)}
    jobs = [job("large", 3, attained=4000, since=1), job("small", 1, attained=4000, since=2)]
    plan = asked(*jobs, job("new", 2), running=running, now=3)
    assert (plan.stopped, plan.allocation) == (("large",), {"new": (0, 1)}), "small stops for it, and goes on"


def test_a_job_that_starves_goes_back_to_the_first_queue() -> None:
    starving, runs = job("starving", 4, attained=4000, since=0), job("runs", 4, attained=3300, since=0)
    for now, promoted in ((1999.0, ()), (2000.0, ("starving",))):
        plan = asked(starving, runs, running={"runs": (0, 1, 2, 3)}, now=now, promote=2, thresholds=(3000, 99999))
        assert plan.promoted == promoted
        assert set(plan.allocation) == set(promoted)
    early = asked(starving, runs, running={"runs": (0, 1, 2, 3)}, now=5, promote=2, thresholds=(3000, 99999))
    assert early.wake == pytest.approx(2000)
    service_reset = replace(starving, service_reset=4000)
    assert set(asked(service_reset, runs, running={"runs": (0, 1, 2, 3)}, now=5).allocation) == {"starving"}


def test_a_job_larger_than_the_cluster_is_dropped() -> None:
    assert asked(job("large", 5), running={}, now=0).dropped == {"large": "it asks for 5 devices; the cluster has 4"}


@pytest.mark.parametrize(
    "parameters", [{"thresholds": ()}, {"thresholds": (3, 2)}, {"thresholds": (0, 2)}, {"promote": -1}]
)
def test_parameters_are_checked(parameters: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="policy tiresias: (thresholds|promote) is"):
        policy("tiresias", **parameters)


@st.composite
def states(draw: st.DrawFn) -> State:
    cluster, now = Cluster((4, 4)), 5000.0
    free, running, jobs = list(range(8)), {}, []
    for index in range(draw(st.integers(0, 10))):
        name, gang = f"job-{index}", draw(st.integers(1, 6))
        runs = gang <= len(free) and draw(st.booleans())
        if runs:
            running[name], free = tuple(free[:gang]), free[gang:]
        attained = draw(st.sampled_from([0.0, 3249.0, 3250.0, 7200.0, 10_000.0]))
        since = now - draw(st.sampled_from([0.0, 1.0, 500.0, 4000.0]))
        jobs.append(job(name, gang, attained=attained, since=since, held=gang if runs else 0, arrival=float(index)))
    return State.of(cluster, jobs, running, time=now)


def queue_of(job: JobState, now: float) -> int:
    return sum(job.attained_at(now) >= limit for limit in (3250, 7200))


@given(states())
def test_nobody_waits_who_could_run_instead_of_later_queues(state: State) -> None:
    plan = policy("tiresias").plan(state)
    runs = plan.whole_of(state.running)
    validate(runs, state)
    free = state.cluster.size - sum(map(len, runs.values()))
    for waiting in state.by_name.keys() - runs.keys():
        job, queue = state.by_name[waiting], queue_of(state.by_name[waiting], state.time)
        later = [name for name in runs if queue_of(state.by_name[name], state.time) > queue and name in state.running]
        assert free + sum(len(runs[name]) for name in later) < job.gang
    assert plan.wake > state.time


@given(states())
def test_only_those_of_earlier_queues_preempt(state: State) -> None:
    plan = policy("tiresias").plan(state)
    first = min((queue_of(state.by_name[name], state.time) for name in plan.allocation), default=9)
    assert all(queue_of(state.by_name[name], state.time) > first for name in plan.stopped)
