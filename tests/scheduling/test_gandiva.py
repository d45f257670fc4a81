"""Gandiva: nodes for one size of job, and turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.gandiva import NodeSets
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy

CURVE = RateCurve({1: 1.0, 8: 8.0}, per_node=4)
NODES = Cluster((4, 4))


def job(name: str, gang: int = 1, **more: object) -> JobState:
    return JobState(name, CURVE, 8, gang=gang, **more)  # type: ignore[arg-type]


def state_of(*jobs: JobState, running: Mapping[str, tuple[int, ...]], now: float, cluster: Cluster = NODES) -> State:
    held = [replace(job, held=len(running.get(job.name, ()))) for job in jobs]
    return State.of(cluster, held, running, time=now)


def asked(*jobs: JobState, running: Mapping[str, tuple[int, ...]], now: float, **parameters: object) -> Plan:
    return policy("gandiva", **parameters).plan(state_of(*jobs, running=running, now=now))


def test_sizes_do_not_share_nodes() -> None:
    plan = asked(job("a"), job("b", 2), job("c"), running={}, now=0)
    assert plan.allocation == {"a": (0,), "b": (4, 5), "c": (1,)}


def test_a_job_larger_than_a_node_takes_whole_nodes() -> None:
    assert asked(job("a", 6), running={}, now=0).allocation == {"a": (0, 1, 2, 3, 4, 5)}


def test_whoever_has_waited_longest_gets_the_turn_of_whoever_has_run_longest() -> None:
    running = {"a": (0, 1), "b": (2, 3), "other": (4,)}
    jobs = [job("a", 2, since=0), job("b", 2, since=10), job("c", 2, arrival=20, since=20), job("other", since=0)]
    early = asked(*jobs, running=running, now=30)
    assert set(early.allocation) == {"a", "b", "other"} and early.wake == 60
    turn = asked(*jobs, running=running, now=60)
    assert turn.allocation == {"c": (0, 1), "b": (2, 3), "other": (4,)}
    assert turn.wake == 120, "when c has had its turn, whoever came first"


def test_literally_a_size_gives_back_all_nodes_but_one() -> None:
    cluster = Cluster((4,) * 4)
    running = {f"j{i}": (i,) for i in range(9)}
    jobs = [job(f"j{i}", since=float(i)) for i in range(9)]
    state = state_of(*jobs, running=running, now=50, cluster=cluster)
    literal, mended = (policy("gandiva", literal=flag).plan(state).allocation for flag in (True, False))
    assert set(literal) == {"j4", "j5", "j6", "j7"}, "for 3 devices too many it gives back 3 nodes, but keeps one"
    assert mended == running


def test_jobs_stay_where_they_were_suspended_and_move_where_there_is_room() -> None:
    running = {"a": (0, 1), "b": (2, 3), "c": (4, 5)}
    jobs = [job(name, 2, since=0.0) for name in running]
    suspended = job("d", 2, attained=5.0, since=0.0, last=(0, 1))
    stays, moves = (asked(*jobs, suspended, running=running, now=1, literal=flag).allocation for flag in (True, False))
    assert stays == running and moves == {**running, "d": (6, 7)}


def test_a_job_larger_than_the_cluster_is_dropped() -> None:
    assert asked(job("large", 9), running={}, now=0).dropped == {"large": "it asks for 9 devices; the cluster has 8"}


@pytest.mark.parametrize(("literal", "waits"), [(True, {}), (False, {"hit": (4, 5)})])
def test_who_has_lost_a_device_gives_up_its_place(literal: bool, waits: dict[str, tuple[int, ...]]) -> None:
    """A live run shows the lost device as held until the job's group has ended; literally the job then waits there."""
    jobs = {name: job(name, 2, held=2) for name in ("hit", "other")}
    state = State(NODES, jobs, {"hit": (0, 1), "other": (2, 3)}, unavailable=frozenset({0}), time=10.0)
    assert policy("gandiva", literal=literal).plan(state).allocation == {"other": (2, 3), **waits}


def test_who_holds_more_than_its_gang_leaves_the_rest_to_others() -> None:
    """No driver shows this, as every job that this policy runs holds its gang; still, nobody is given no device."""
    state = State.of(Cluster((2,)), [job("runs"), job("waits")], {"runs": (0, 1)})
    assert policy("gandiva").plan(state).allocation == {"runs": (0,), "waits": (1,)}


@pytest.mark.parametrize("parameters", [{"quantum": 0}, {"quantum": float("nan")}, {"literal": 1}])
def test_parameters_are_checked(parameters: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="policy gandiva: (quantum|literal) is"):
        policy("gandiva", **parameters)


@st.composite
def states(draw: st.DrawFn) -> State:
    cluster = Cluster((4,) * 4)
    lost = frozenset(draw(st.sets(st.integers(0, 15), max_size=3)))
    free, running, jobs = [device for device in range(16) if device not in lost], {}, []
    for index in range(draw(st.integers(0, 14))):
        name, gang = f"job-{index}", draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
        runs = gang <= len(free) and draw(st.booleans())
        if runs:
            running[name], free = tuple(free[:gang]), free[gang:]
        last = () if runs else draw(st.sampled_from([(), (0,), (9,)]))
        since = draw(st.sampled_from([0.0, 50.0, 99.0]))
        jobs.append(job(name, gang, since=since, attained=float(bool(last)), last=last, held=gang * runs))
    return State(cluster, {job.name: job for job in jobs}, running, unavailable=lost, time=100.0)


@given(states(), st.booleans())
def test_plans_can_be_carried_out_and_leave_no_set_idle_where_somebody_waits(state: State, literal: bool) -> None:
    plan = policy("gandiva", literal=literal).plan(state)
    validate(plan.allocation, state)
    assert all(len(devices) == state.by_name[name].gang for name, devices in plan.allocation.items())
    assert plan.allocation or not state.by_name, "each of these jobs fits on the machine alone"
    assert plan.wake > state.time


@given(states())
def test_each_running_job_is_in_one_set_or_astray(state: State) -> None:
    sets = NodeSets(state)
    found = [job.name for of_size in sets.of.values() for each in of_size for job in each.jobs]
    found += [job.name for job in sets.astray]
    assert sorted(found) == sorted(state.running)


@given(states(), st.sets(st.integers(0, 15), max_size=8), st.booleans())
def test_a_device_lost_under_its_job_is_given_to_nobody(state: State, lost: set[int], literal: bool) -> None:
    hit = replace(state, unavailable=state.unavailable | lost)
    plan = policy("gandiva", literal=literal).plan(hit)
    validate(plan.allocation, hit)
    assert all(len(devices) == hit.by_name[name].gang for name, devices in plan.allocation.items())
