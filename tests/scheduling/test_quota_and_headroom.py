"""What is guaranteed to guaranteed jobs, and what they may not have (EasyScale, SC'23, 5.3)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.easyscale import EasyScale
from tests.scheduling.support.kinds_of_device import MIXED, job, states

EIGHT = Cluster((8,))


def elastic(name: str, workers: int = 8, **more: Any) -> JobState:
    return JobState(name, RateCurve({1: 2.0}, 8, workers=workers), workers, **more)


def serving(name: str, gang: int, **more: Any) -> JobState:
    return elastic(name, gang, **{"gang": gang, "guaranteed": True, "arrival": 1.0, **more})


def plan(state: State, **parameters: Any) -> Plan:
    found = EasyScale(**parameters).plan(state)
    validate(found.whole_of(state.running), state)
    return found


def test_guaranteed_jobs_take_from_others_up_to_the_quota() -> None:
    held = {"a": tuple(range(8))}
    jobs = [elastic("a"), serving("s", 2), serving("t", 3, arrival=2.0)]
    assert plan(State.of(EIGHT, jobs, held)).allocation.keys() == {"a", "s", "t"}
    found = plan(State.of(EIGHT, jobs, held), quota=0.5).allocation
    assert found.keys() == {"a", "s"} and len(found["a"]) == 4, "two more than are taken, as three turn no step sooner"


def test_beyond_the_quota_a_job_takes_what_is_free_and_waits_in_line_otherwise() -> None:
    late = elastic("late", 2, arrival=3.0)
    waits = State.of(EIGHT, [elastic("a", 4), serving("s", 5), late], {"a": (0, 1, 2, 3)})
    assert plan(waits, quota=0.5).allocation == {}, "late does not overtake"
    assert plan(replace(waits, running={}), quota=0.5).allocation["s"] == (0, 1, 2, 3, 4)
    free = State.of(EIGHT, [elastic("a", 3), serving("s", 5)], {"a": (0, 1, 2)})
    assert plan(free, quota=0.5).allocation == {"s": (3, 4, 5, 6, 7)}


def test_a_guaranteed_job_finds_its_headroom_free_and_nobody_stops() -> None:
    alone = State.of(EIGHT, [elastic("a")])
    assert len(plan(alone).allocation["a"]) == 8 and len(plan(alone, headroom=0.25).allocation["a"]) == 4
    jobs = [elastic("a", 6), serving("s", 2)]
    assert plan(State.of(EIGHT, jobs, {"a": (0, 1, 2, 3, 4, 5)}), headroom=0.25).allocation == {"s": (6, 7)}
    # What guaranteed jobs hold is theirs, so that nothing more is kept for them.
    both = State.of(EIGHT, [serving("s", 2), elastic("a", 6)], {"s": (6, 7)})
    assert plan(both, headroom=0.25).allocation == {"a": (0, 1, 2, 3, 4, 5)}


def test_headroom_is_kept_on_each_kind_of_device() -> None:
    found = plan(State.of(MIXED, [job("a", 64)]), headroom=0.5).allocation["a"]
    assert sum(device < 4 for device in found) == 2 and sum(device >= 4 for device in found) == 2


def test_what_comes_back_to_its_owner_leaves_the_headroom_free() -> None:
    one = elastic("a", 6)
    before = State.of(EIGHT, [one, serving("s", 5, remaining=100.0)], {"a": (0, 1, 2, 3, 4, 5)}, time=1.0)
    taken = plan(before, headroom=0.25)
    assert len(taken.allocation["s"]) == 5 and taken.allocation["s"][-2:] == (6, 7)
    running = {"a": taken.allocation["a"]}
    ended = State.of(EIGHT, [one], running, promises=taken.promises, time=11.0)
    assert plan(ended, headroom=0.25).allocation == {"a": (0, 1, 2, 3, 4, 5)}


@given(
    states(least=True), st.sampled_from([0.25, 0.5, 1.0]), st.sampled_from([0.0, 0.25]),
    st.sampled_from([0.0, 300.0]), st.booleans(),
)  # fmt: skip
@settings(max_examples=200)
def test_the_laws_of_quota_and_headroom(
    state: State, quota: float, headroom: float, patience: float, heterogeneous: bool
) -> None:
    one = EasyScale(heterogeneous, quota=quota, headroom=headroom, patience=patience)
    whole = one.plan(state).whole_of(state.running)
    validate(whole, state)
    served = {name: held for name, held in whole.items() if state.by_name[name].guaranteed}
    began = served.keys() - state.running.keys()
    free = [device for device in range(state.cluster.size) if not any(device in held for held in whole.values())]
    preempted = {
        device for name, held in state.running.items() if not state.by_name[name].guaranteed for device in held
    }.intersection(*[{device for name in began for device in served[name]}])
    if preempted:
        first = sum(map(len, served.values())) - sum(len(served[name]) for name in began)
        assert first <= math.floor(quota * state.cluster.size), "some were within the quota"
    for kind, count in state.cluster.counts().items():
        there = [device for device in range(state.cluster.size) if state.cluster.kind_of(device) == kind]
        kept = math.ceil(headroom * count) - sum(device in there for held in served.values() for device in held)
        new = {
            device
            for name, held in whole.items()
            if not state.by_name[name].guaranteed
            for device in set(held).difference(state.running.get(name, ())).intersection(there)
        }
        assert not new or sum(device in there for device in free) >= kept, kind
