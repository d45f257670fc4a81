"""Sharing: lanes worked by hand, and what every plan keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State, validate
from fleet.spec.policies import policy
from tests.scheduling.support.printed import job
from tests.scheduling.support.strategies import states


def lanes(plan: Plan) -> list[set[str]]:
    found: dict[int, set[str]] = {}
    for name, number in plan.lanes.items():
        found.setdefault(number, set()).add(name)
    return sorted(found.values(), key=sorted)


def planned(state: State, **parameters: object) -> Plan:
    plan = policy("sharing", **parameters).plan(state)
    validate(plan.whole_of(state.running), state)
    return plan


def fresh(name: str, samples: float, *rates: float, stream: str = "s") -> JobState:
    return job(name, *rates, stream=stream).changed(remaining=samples)


def test_equal_rates_share_a_lane() -> None:
    jobs = tuple(fresh(name, 100.0, 10) for name in "abc")
    plan = planned(State.of(Cluster((3,)), jobs))
    assert lanes(plan) == [{"a", "b", "c"}] and plan.bound == pytest.approx(10) and plan.end == pytest.approx(10)


def test_fast_and_slow_read_on_lanes_of_their_own_while_there_are_lanes() -> None:
    jobs = (fresh("a", 100.0, 10), fresh("b", 100.0, 10), fresh("c", 400.0, 40), fresh("d", 400.0, 40))
    state = State.of(Cluster((4,)), jobs)
    assert lanes(planned(state, streams=2)) == [{"a", "b"}, {"c", "d"}]
    assert len(lanes(planned(state, streams=1))) == 1


def test_a_slow_job_keeps_the_pace_with_more_devices() -> None:
    jobs = (fresh("slow", 400.0, 10, 20, 30, 40), fresh("fast", 400.0, 40))
    plan = planned(State.of(Cluster((5,)), jobs), streams=1)
    assert lanes(plan) == [{"fast", "slow"}] and len(plan.allocation["slow"]) == 4


def test_jobs_without_a_stream_read_for_themselves() -> None:
    jobs = tuple(fresh(name, 100.0, rate, stream="") for name, rate in (("a", 10), ("b", 20), ("c", 30)))
    assert lanes(planned(State.of(Cluster((3,)), jobs), streams=1)) == [{"a"}, {"b"}, {"c"}]


def test_lanes_of_each_stream_are_counted_by_themselves() -> None:
    jobs = tuple(fresh(f"{name}-{stream}", 100.0, 10, stream=stream) for name in "ab" for stream in "st")
    assert lanes(planned(State.of(Cluster((4,)), jobs), streams=1)) == [{"a-s", "b-s"}, {"a-t", "b-t"}]


def test_a_lane_that_suits_goes_on() -> None:
    jobs = tuple(fresh(name, 100.0, 10).changed(held=1, pace=10.0, restart=5.0) for name in "ab")
    plan = planned(State.of(Cluster((2,)), jobs, {"a": (0,), "b": (1,)}))
    assert not plan.allocation and not plan.stopped and plan.others_go_on


@given(states(), st.sampled_from([1, 2, 6]), st.sampled_from([None, 12.0]))
def test_plans_are_valid_and_keep_to_their_lanes(state: State, streams: int, mean_epochs: float | None) -> None:
    plan = policy("sharing", streams=streams, mean_epochs=mean_epochs).plan(state)
    validate(plan.whole_of(state.running), state)
    assert plan.lanes.keys() == plan.allocation.keys()
    for stream in {member.stream for member in state.jobs}:
        numbers = {number for name, number in plan.lanes.items() if state.by_name[name].stream == stream}
        assert len(numbers) <= streams
    for number in set(plan.lanes.values()):
        assert len({state.by_name[name].stream for name, other in plan.lanes.items() if other == number}) == 1
    if plan.bound is not None and plan.end is not None:
        assert state.time <= plan.bound <= plan.end * (1 + 1e-9)


@given(states(idle=True))
def test_an_idle_machine_is_put_to_work(state: State) -> None:
    assert bool(policy("sharing").plan(state).allocation) == bool(state.jobs and state.available)


@pytest.mark.parametrize("value", [0, -1, 1.5, "few", True])
def test_other_numbers_of_lanes_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="policy sharing: streams is .* must be a whole number of 1 or more"):
        policy("sharing", streams=value)
