"""minP of each job: it has so many devices or more, or none (EasyScale, SC'23, 3.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.easyscale import EasyScale
from fleet.scheduling.policies.wrappers import for_kinds
from fleet.spec.policies import breaks_minimum, policy, policy_class
from tests.scheduling.support.all_policies import NAMES
from tests.scheduling.support.kinds_of_device import job, states
from tests.scheduling.support.strategies import curves

KEEPING = ("fifo", "tiresias", "throughput", "gandiva", "easyscale", "themis", "chronus")


def plan(state: State, **parameters: object) -> dict[str, tuple[int, ...]]:
    found = EasyScale(**parameters).plan(state)  # type: ignore[arg-type]
    whole = found.whole_of(state.running)
    validate(whole, state)
    return whole


def alike(name: str, workers: int = 8, **more: object) -> JobState:
    """A job on devices that are alike."""
    return JobState(name, RateCurve({1: 2.0}, 8, workers=workers), workers, **more)  # type: ignore[arg-type]


def test_a_plan_with_fewer_devices_is_refused() -> None:
    state = State.of(Cluster((4,)), [alike("a", minimum_devices=3)])
    with pytest.raises(ValueError, match="job a is given 2 devices, but runs on 3 at least"):
        validate({"a": (0, 1)}, state)
    with pytest.raises(ValueError, match="minimum_devices is 0; it must be 1 or more"):
        alike("a", minimum_devices=0)


def test_a_job_waits_until_it_can_have_its_least_and_is_not_overtaken() -> None:
    cluster, large = Cluster((4,)), alike("large", minimum_devices=3, arrival=1.0)
    first, small = alike("first", 2), alike("small", 1, arrival=2.0)
    assert plan(State.of(cluster, [first, large, small], {"first": (0, 1)})) == {"first": (0, 1)}
    assert plan(State.of(cluster, [large, small])) == {"large": (0, 1, 2), "small": (3,)}


def test_only_kinds_with_enough_devices_are_home_to_a_job_that_stays_on_one() -> None:
    cluster = Cluster((2, 4), ("fast", "slow"))
    one = job("a", 8, fast=9.0, slow=1.0, kind="", mixed_kinds=False)
    assert plan(State.of(cluster, [one])) == {"a": (0, 1)}
    assert plan(State.of(cluster, [one.changed(minimum_devices=3)])) == {"a": (2, 3, 4, 5)}
    dropped = EasyScale().plan(State.of(cluster, [one.changed(minimum_devices=5)])).dropped
    assert dropped == {"a": "it asks for 5 devices or more; there are fewer"}


def test_a_guaranteed_job_takes_what_is_above_the_least_first_and_then_whole_jobs() -> None:
    cluster, running = Cluster((8,)), {"a": (0, 1, 2, 3), "b": (4, 5, 6, 7)}
    jobs = [alike("a", 4, minimum_devices=4), alike("b", 4, minimum_devices=2, arrival=1.0)]
    serving = alike("s", 4, gang=2, guaranteed=True, arrival=2.0)
    assert plan(State.of(cluster, [*jobs, serving], running)) == {"a": (0, 1, 2, 3), "b": (4, 5), "s": (6, 7)}
    larger = serving.changed(gang=3)
    found = EasyScale().plan(State.of(cluster, [*jobs, larger], running))
    assert found.stopped == ("b",) and len(found.allocation["s"]) == 3


def test_a_slow_down_brings_no_job_below_its_least() -> None:
    learnt = replace(alike("a", 8), rate=RateCurve({1: 2.0, 2: 4.0, 4: 3.0}, 8, workers=8))
    held = {"a": (0, 1, 2, 3)}
    assert plan(State.of(Cluster((8,)), [learnt], held)) == {"a": (0, 1)}
    assert len(plan(State.of(Cluster((8,)), [learnt.changed(minimum_devices=3)], held))["a"]) == 3


def test_who_loses_devices_goes_on_elsewhere_or_leaves_what_is_left() -> None:
    cluster, one = Cluster((4, 4)), alike("a", 4, minimum_devices=4)
    held = {"a": (0, 1, 2, 3)}
    assert plan(State.of(cluster, [one], held, unavailable=frozenset({0}))) == {"a": (4, 5, 6, 7)}
    found = EasyScale().plan(State.of(cluster, [one], held, unavailable=frozenset({0, 4, 5, 6, 7})))
    assert found.allocation == {} and found.stopped == ("a",)


def test_a_job_for_which_too_few_devices_work_holds_nobody_up() -> None:
    jobs = [alike("large", minimum_devices=4), alike("small", 1, arrival=1.0)]
    assert plan(State.of(Cluster((4,)), jobs, unavailable=frozenset({0}))) == {"small": (1,)}


@given(states(least=True), st.booleans(), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 2.0]), st.data())
@settings(max_examples=200)
def test_no_job_has_fewer_devices_than_its_least(
    state: State, heterogeneous: bool, min_share: float, growth: float, data: st.DataObject
) -> None:
    lost = frozenset(data.draw(st.sets(st.sampled_from(range(state.cluster.size)), max_size=3)))
    state = replace(state, unavailable=lost)
    whole = plan(state, heterogeneous=heterogeneous, min_share=min_share, growth=growth)
    for name, devices in whole.items():
        assert len(devices) >= state.by_name[name].minimum_devices


@st.composite
def gangs(draw: st.DrawFn) -> State:
    """Jobs that wait, of which each asks for its least or for more."""
    cluster = Cluster(tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))))
    jobs = []
    for index in range(draw(st.integers(1, 8))):
        gang, deadline = draw(st.integers(1, 8)), draw(st.sampled_from([50.0, 1e9]))
        least = draw(st.integers(1, gang))
        jobs.append(JobState(
            f"job-{index}", draw(curves(gang)), gang, gang=gang, minimum_devices=least, arrival=float(index),
            deadline=deadline, remaining=100.0,
        ))  # fmt: skip
    return State.of(cluster, jobs, time=240.0)


@pytest.mark.parametrize("name", [name for name in KEEPING if name != "easyscale"])
@given(gangs())
@settings(max_examples=40)
def test_gangs_are_never_smaller_than_their_least(name: str, state: State) -> None:
    found = policy(name).plan(state)
    validate(found.whole_of(state.running), state)
    kinds = tuple("fast" if node % 2 else "slow" for node in range(state.cluster.nodes))
    mixed = replace(state, cluster=Cluster(state.cluster.devices_per_node, kinds))
    validate(for_kinds(policy(name), mixed.cluster).plan(mixed).whole_of({}), mixed)


def test_throughput_shares_out_what_is_beyond_the_least_of_all() -> None:
    cluster, policy_ = Cluster((4,)), policy("throughput")
    large, small = alike("large", 4, minimum_devices=3), alike("small", 2, arrival=1.0)
    assert policy_.plan(State.of(cluster, [large, small])).allocation == {"large": (0, 1, 2), "small": (3,)}
    held = {"small": (0, 1)}
    waiting = policy_.plan(State.of(cluster, [large, small, alike("last", 1, arrival=2.0)], held)).whole_of(held)
    assert {name: len(devices) for name, devices in waiting.items()} == {"large": 3, "small": 1}, (
        "who is there gives up what is beyond its least"
    )
    broken = State.of(cluster, [large, small], unavailable=frozenset({0, 1}))
    assert policy_.plan(broken).allocation == {"small": (2, 3)}, "nobody waits for a job that cannot start"
    dropped = policy_.plan(State.of(Cluster((2,)), [large, small])).dropped
    assert dropped == {"large": "it needs 3 devices; the cluster has 2"}
    most = policy("throughput", most=2).plan(State.of(cluster, [large])).dropped
    assert most == {"large": "it needs 3 devices; it may have 2"}


def test_the_other_policies_say_that_they_do_not_keep_it() -> None:
    assert {name for name in NAMES if policy_class(name).keeps_minimum} == {*KEEPING}
    assert all(breaks_minimum(name) is None for name in KEEPING)
    told = breaks_minimum("flotilla")
    assert told == (
        "policy flotilla gives a job any number of devices from 1 on; fifo, throughput and easyscale keep to "
        "minimum_devices"
    )
