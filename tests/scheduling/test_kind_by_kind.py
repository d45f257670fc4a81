"""Policies that take devices to be alike plan for each kind of them alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling import Policy
from fleet.scheduling.easyscale.kind_curves import KindCurves
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.placing.homes import Homes
from fleet.scheduling.policies.wrappers import KindByKind, for_kinds
from fleet.spec.policies import policy
from tests.scheduling.support.all_policies import NAMES, POLICIES

CLUSTER = Cluster((2, 2, 1), ("fast", "slow", "fast"))  # fast: 0, 1, 4; slow: 2, 3
BLIND = [name for name, kind in zip(NAMES, POLICIES) if not kind.knows_kinds]


def job(name: str, workers: int = 2, fast: float = 20.0, slow: float = 10.0, **more: Any) -> JobState:
    curves = {"fast": RateCurve({1: fast}, 2, workers=workers), "slow": RateCurve({1: slow}, 2, workers=workers)}
    fields = {"remaining": 1000.0, "epoch": 100.0, "batch": workers, "gang": workers, **more}
    return JobState(name, curves["fast"], workers, scaling=KindCurves(curves, "fast", workers, 1.0), **fields)


def kinds(state: State, devices: tuple[int, ...]) -> set[str]:
    return {state.cluster.kind_of(device) for device in devices}


def chosen(name: str) -> Policy:
    made = for_kinds(policy(name), CLUSTER)
    assert isinstance(made, KindByKind)
    return made


@st.composite
def states(draw: st.DrawFn) -> State:
    """Jobs on two kinds of device, some of which run, on one kind each."""
    free, jobs, running = list(range(CLUSTER.size)), [], {}
    for index in range(draw(st.integers(1, 6))):
        workers = draw(st.integers(1, 3))
        home = draw(st.sampled_from(["fast", "slow"]))
        fitting = [device for device in free if CLUSTER.kind_of(device) == home]
        count = draw(st.integers(0, min(workers, len(fitting))))
        mixed = draw(st.booleans())
        one = job(
            f"job-{index}", workers, draw(st.floats(1, 30)), draw(st.floats(1, 30)), mixed_kinds=mixed,
            remaining=draw(st.floats(1, 1e5)), kind="" if mixed or not count else home, arrival=0.0,
            pace=1.0 if count else 0.0, held=count, losses=(1.0, 0.5), restart=1.0,
            deadline=math.inf if count else draw(st.sampled_from([math.inf, 60.0, 1e4])),
        )  # fmt: skip
        jobs.append(one)
        if count:
            running[one.name] = tuple(fitting[:count])
            free = [device for device in free if device not in running[one.name]]
    lost = frozenset(free[:1]) if draw(st.booleans()) else frozenset[int]()
    return State.of(CLUSTER, jobs, running, unavailable=lost, time=10.0)


@pytest.mark.parametrize("name", BLIND)
@settings(max_examples=25)
@given(state=states())
def test_no_job_ever_has_two_kinds_and_plans_can_be_carried_out(name: str, state: State) -> None:
    decided = chosen(name)
    for _ in range(3):  # what it remembers and promises is seen again
        plan = decided.plan(state)
        whole = plan.whole_of(state.running)
        validate(whole, state)
        assert all(len(kinds(state, devices)) == 1 for devices in whole.values())
        for name_, devices in whole.items():
            one = state.by_name[name_]
            if one.kind and not one.mixed_kinds:
                assert kinds(state, devices) == {one.kind}, "its bits hold for the kind on which it began"
        state = after(state, plan)


def after(state: State, plan: Plan) -> State:
    """A second later: the plan is carried out, what it promises is kept, and who is dropped has left."""
    whole = {name: devices for name, devices in plan.whole_of(state.running).items() if name not in plan.dropped}
    jobs = [
        job.changed(admitted=job.admitted or job.name in plan.admitted)
        for job in state.jobs
        if job.name not in plan.dropped
    ]
    promises = {name: kept for name, kept in {**state.promises, **plan.promises}.items() if name not in plan.dropped}
    changed = (*plan.dropped, *(name for name in whole if state.running.get(name) != whole[name]))
    return State.of(
        CLUSTER, jobs, whole, unavailable=state.unavailable, time=state.time + 1, changed=changed, memo=plan.memo,
        promises=promises,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["flotilla", "local", "malleable", "sharing", "elasticflow", "deadline", "baseline"])
def test_all_kinds_are_used(name: str) -> None:
    state = State.of(CLUSTER, [job(f"job-{i}", 1, mixed_kinds=True) for i in range(5)])
    whole = chosen(name).plan(state).whole_of({})
    assert set().union(*(kinds(state, devices) for devices in whole.values())) == {"fast", "slow"}


def test_jobs_are_dealt_so_that_all_kinds_are_done_together() -> None:
    state = State.of(CLUSTER, [job(f"job-{i}", 1, mixed_kinds=True) for i in range(8)])
    homes = list(Homes(state, {}).of.values())
    assert (homes.count("fast"), homes.count("slow")) == (6, 2), "3 devices of 20 samples/s, 2 of 10"


def test_a_job_stays_on_the_kind_on_which_it_began() -> None:
    tied = job("tied", kind="slow", last=(2,))
    assert Homes(State.of(CLUSTER, [tied]), {}).of == {"tied": "slow"}
    free = job("free", mixed_kinds=True)
    assert Homes(State.of(CLUSTER, [free]), {}).of == {"free": "fast"}
    assert Homes(State.of(CLUSTER, [free]), {"free": "slow"}).of == {"free": "slow"}, "as it was promised there"


def test_a_lone_job_moves_to_an_idle_kind_that_is_faster() -> None:
    alone = job("a", 1, mixed_kinds=True, restart=1.0, pace=10.0, held=1)
    state = State.of(CLUSTER, [alone], {"a": (2,)}, time=0.0)
    assert chosen("flotilla").plan(state).whole_of(state.running) == {"a": (0,)}
    almost = State.of(CLUSTER, [alone.changed(remaining=15.0)], {"a": (2,)}, time=0.0)
    assert chosen("flotilla").plan(almost).whole_of(almost.running) == {"a": (2,)}, "moving would take longer"
    tied = State.of(CLUSTER, [alone.changed(mixed_kinds=False, kind="slow")], {"a": (2,)}, time=0.0)
    assert chosen("flotilla").plan(tied).whole_of(tied.running) == {"a": (2,)}


def test_a_gang_too_large_for_its_home_is_tried_on_the_largest_kind() -> None:
    state = State.of(CLUSTER, [job("large", 3, 10.0, 30.0)])
    assert Homes(state, {}).of["large"] == "slow"
    plan = chosen("tiresias").plan(state)
    assert not plan.dropped and kinds(state, plan.allocation["large"]) == {"fast"}


def test_who_knows_kinds_is_asked_for_all_of_them_at_once() -> None:
    assert not isinstance(for_kinds(policy("easyscale"), CLUSTER), KindByKind)
    assert not isinstance(for_kinds(policy("fifo"), CLUSTER), KindByKind)
    assert not isinstance(for_kinds(policy("flotilla"), Cluster((4,))), KindByKind)


def test_jobs_on_different_kinds_never_read_together() -> None:
    state = State.of(CLUSTER, [job(f"job-{i}", 1, mixed_kinds=True, stream="s") for i in range(5)])
    plan = chosen("flotilla").plan(state)
    lanes: dict[int, set[str]] = {}
    for name, devices in plan.allocation.items():
        lanes.setdefault(plan.lanes.get(name, 0), set()).update(kinds(state, devices))
    assert len(lanes) >= 2 and all(len(found) == 1 for found in lanes.values()), lanes
    again = chosen("flotilla").plan(after(state, plan))
    assert not again.lanes, "who goes on is not begun anew"
