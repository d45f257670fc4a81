"""Several executors of a job on an accelerator: chosen where they are faster (EasyScale, SC'23, 3.4.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.easyscale.intra_job import Capability, configure
from fleet.scheduling.easyscale.kind_curves import each_of, kept_speed, layout_of, pace_in
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.easyscale import Accelerators, EasyScale
from fleet.spec.policies import policy

SHARED = Cluster((4, 4), sharing=((0, 2), (1, 3), (4, 6), (5, 7)))
"""Two nodes of two accelerators, on each of which two trainers are."""


def job(name: str, *rates: float, workers: int = 4, **more: Any) -> JobState:
    curve = RateCurve({1: 0.6 * (rates or (1.0,))[0]}, 4, workers=workers)
    return JobState(name, curve, workers, executor_rates=rates, **more)


def plan(state: State, **parameters: Any) -> dict[str, tuple[int, ...]]:
    found = EasyScale(**{"executors": 2, **parameters}).plan(state)
    whole = found.whole_of(state.running)
    validate(whole, state)
    return whole


# Rates


def test_a_layout_says_who_shares_with_whom() -> None:
    assert layout_of((0, 1, 3), SHARED) == (2, 1) and layout_of((0, 4), SHARED) == (1, 1)
    assert layout_of((0, 2), Cluster((4,))) == () and layout_of((), SHARED) == ()


def test_devices_that_share_are_all_named_once() -> None:
    with pytest.raises(ValueError, match=r"name each of the 4 devices once"):
        Cluster((4,), sharing=((0, 1), (1, 2)))


def test_the_pace_of_a_layout_is_what_its_slowest_trainer_makes() -> None:
    # Three workers: one executor turns three of them, two turn two and one.
    rates, curve = (3.0, 3.0), RateCurve({1: 3.0, 3: 6.0}, 4, workers=3)
    assert each_of(rates, 3) == (3.0, 2.0)
    assert pace_in((1,), rates, curve, 3) == 3.0 and pace_in((2,), rates, curve, 3) == 3.0
    assert kept_speed(curve, 3, 3) == pytest.approx(6 / 9)
    assert pace_in((1, 1, 1), rates, curve, 3) == pytest.approx(9.0 * 6 / 9)
    assert pace_in((2, 1), rates, curve, 3) == pytest.approx(3 * 2.0 * kept_speed(curve, 3, 2))


def test_measured_executors_go_before_an_assumed_interference() -> None:
    one = Capability(1.0, 2, 0.5, (2.0, 1.5))
    assert (one.each(1), one.each(2)) == (2.0, 1.5) and replace(one, measured=()).each(2) == 0.5
    best = configure((1,), [one], 4)
    assert best is not None and best.executors == (2,) and best.perf == pytest.approx(3.0)


def test_no_executor_is_without_a_worker() -> None:
    best = configure((2,), [Capability(1.0, 4)], 5)
    assert best is not None and best.executors == (2,)
    found = configure((3,), [Capability(1.0, 4)], 3)
    assert found is not None and found.executors == (1,)


# Plans


def test_two_are_on_an_accelerator_where_they_are_faster_and_one_where_not() -> None:
    assert plan(State.of(SHARED, [job("a", 1.0, 1.6, workers=2)])) == {"a": (0, 1)}, "a worker on each of two"
    assert plan(State.of(Cluster((2,), sharing=((0, 1),)), [job("a", 1.0, 1.6)])) == {"a": (0, 1)}
    assert plan(State.of(Cluster((2,), sharing=((0, 1),)), [job("a", 1.0, 0.9)])) == {"a": (0,)}
    assert plan(State.of(SHARED, [job("a", 1.0, 1.6, workers=8)])) == {"a": tuple(range(8))}
    assert plan(State.of(SHARED, [job("a", 1.0, 0.9, workers=8)])) == {"a": (0, 1, 4, 5)}


def test_an_accelerator_is_one_job_s_where_executors_are_chosen() -> None:
    jobs = [job("a", 1.0, 0.9), job("b", 1.0, 0.9, arrival=1.0)]
    found = plan(State.of(Cluster((2,), sharing=((0, 1),)), jobs))
    assert found == {"a": (0,)}, "nobody is on the other half"
    assert len(plan(State.of(Cluster((2,), sharing=((0, 1),)), jobs), executors=None)) == 2


def test_without_measured_rates_each_accelerator_has_one() -> None:
    assert plan(State.of(SHARED, [job("a", workers=8)])) == {"a": (0, 1, 4, 5)}


def test_a_guaranteed_job_has_an_accelerator_for_each_of_its_gang() -> None:
    jobs = [job("a", 1.0, 1.6, workers=8), job("s", 1.0, 1.6, workers=2, gang=2, guaranteed=True, arrival=1.0)]
    found = plan(State.of(SHARED, jobs, {"a": tuple(range(8))}))
    assert len(found["s"]) == 2 and len({device % 2 + device // 4 * 2 for device in found["s"]}) == 2
    assert len(found["a"]) == 4


def test_who_stays_on_his_accelerators_keeps_his_trainers() -> None:
    held = {"a": (0, 1, 4, 5)}
    assert plan(State.of(SHARED, [job("a", 1.0, 1.6, workers=8)], held)) == held


def test_a_trainer_that_is_lost_leaves_the_others_of_its_accelerator() -> None:
    lost = frozenset({0})
    held = {"a": tuple(range(8))}
    found = plan(State.of(SHARED, [job("a", 1.0, 1.6, workers=8)], held, unavailable=lost))
    assert found == {"a": (1, 2, 3, 4, 5, 6, 7)}
    both = plan(State.of(SHARED, [job("a", 1.0, 1.6, workers=8)], held, unavailable=frozenset({0, 2})))
    assert both == {"a": (1, 3, 4, 5, 6, 7)}


def test_it_is_a_parameter_of_the_policy() -> None:
    assert policy("easyscale", executors=3).most_executors == 3 and policy("easyscale").most_executors == 1
    assert policy("easyscale", executors={"v100": 2}).most_executors == policy("fifo").most_executors == 1
    with pytest.raises(ValueError, match="policy easyscale: executors is 0; it must be 1 or more"):
        policy("easyscale", executors=0)


# Laws


@st.composite
def shared(draw: st.DrawFn) -> State:
    """Jobs on accelerators that one to three trainers share; some run, some trainers are lost."""
    members, nodes = draw(st.integers(1, 3)), draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    sharing: list[tuple[int, ...]] = []
    start = 0
    for count in nodes:
        sharing += [tuple(range(start + i, start + count * members, count)) for i in range(count)]
        start += count * members
    cluster = Cluster(tuple(count * members for count in nodes), sharing=tuple(sharing))
    rates, free = st.floats(0.5, 4.0), draw(st.permutations(sharing))
    jobs, running = [], {}
    for index in range(draw(st.integers(1, 5))):
        workers = draw(st.integers(1, 8))
        known = tuple(draw(st.lists(rates, max_size=members)))
        one = job(f"job-{index}", *known, workers=workers, arrival=float(index), guaranteed=draw(st.booleans()))
        jobs.append(one)
        count, each = draw(st.integers(0, min(len(free), workers))), draw(st.integers(1, members))
        each = min(each, workers // count) if count else 0
        if count and not one.guaranteed:
            running[one.name] = tuple(sorted(device for devices in free[:count] for device in devices[:each]))
            free = free[count:]
    lost = frozenset(draw(st.sets(st.sampled_from(range(cluster.size)), max_size=2)))
    return State.of(cluster, jobs, running, time=120.0, unavailable=lost)


@given(shared(), st.integers(1, 3))
@settings(max_examples=200)
def test_no_accelerator_has_two_jobs_and_no_job_more_trainers_than_workers(state: State, executors: int) -> None:
    whole = plan(state, executors=executors)
    users = [{name for name, held in whole.items() if set(held) & set(devices)} for devices in state.cluster.sharing]
    assert all(len(names) < 2 for names in users)
    for name, held in whole.items():
        layout = layout_of(held, state.cluster)
        if held != state.running.get(name):
            assert max(layout) <= max(1, min(executors, len(state.by_name[name].executor_rates)))
    assert Accelerators(state).state.cluster.size == len(state.cluster.sharing)
