"""EasyScale's equations, its two schedulers and its plans: by hand, against brute force, and on random states."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.scheduling.easyscale.companions import Companions, Rules
from fleet.scheduling.easyscale.intra_job import Capability, PlanDatabase, Proposal, approved, configure, evaluate
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.policy import State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.easyscale import EasyScale
from fleet.spec.policies import policy
from tests.scheduling.support.kinds_of_device import MIXED, job, speeds, states
from tests.scheduling.support.placed_workers import workers_of


def capable(*speeds_: float) -> tuple[Capability, ...]:
    return tuple(Capability(speed) for speed in speeds_)


def database(workers: int, *speeds_: float, **more: object) -> PlanDatabase:
    more = {"least": 1, "most": workers, "there": (99,) * len(speeds_), **more}
    return PlanDatabase(capable(*speeds_), workers, **more)  # type: ignore[arg-type]


# Equations 1a to 1e


def test_the_equations_by_hand() -> None:
    # 2 V100 at 2.45 mini-batches/s with 3 workers each, 2 T4 at 1 with 1 each: the V100 are the bottleneck.
    found = evaluate((2, 2), (1, 1), (3, 1), capable(2.45, 1.0), 8)
    assert found is not None
    overload = 3 / 2.45
    waste = 2 * (1 - 1 / overload)
    assert found.waste == pytest.approx(waste / (2 * 2.45 + 2))
    assert found.perf == pytest.approx(8 / overload) == pytest.approx(2 * 2.45 + 2 - waste)
    assert evaluate((2, 2), (1, 1), (2, 1), capable(2.45, 1.0), 8) is None, "room for 6 of 8 workers"


def test_room_that_nobody_needs_is_waste() -> None:
    found = configure((3,), capable(1.0), 8)
    assert found is not None
    assert (found.threads, found.perf, found.waste) == ((3,), pytest.approx(8 / 3), pytest.approx(1 / 9))


def test_the_split_follows_the_speeds() -> None:
    found = configure((1, 2), capable(2.0, 1.0), 4)
    assert found is not None
    assert (found.threads, found.waste, found.perf) == ((2, 1), pytest.approx(0), pytest.approx(4))


def test_a_kind_too_slow_for_one_worker_gets_none() -> None:
    found = configure((4, 1), capable(1.0, 0.1), 4)
    assert found is not None and found.threads == (1, 0) and found.perf == pytest.approx(4)


def test_several_executors_where_they_are_faster() -> None:
    shared = configure((1,), (Capability(1.0, executors=2, interference=0.8),), 4)
    assert shared is not None
    assert (shared.executors, shared.threads, shared.perf) == ((2,), (2,), pytest.approx(1.6))
    alone = configure((1,), (Capability(1.0, executors=2, interference=0.5),), 4)
    assert alone is not None and (alone.executors, alone.threads, alone.perf) == ((1,), (4,), pytest.approx(1.0))


@given(st.lists(st.tuples(st.integers(0, 3), speeds), min_size=1, max_size=3), st.integers(1, 6))
@settings(max_examples=80)
def test_no_other_split_is_faster(kinds: list[tuple[int, float]], workers: int) -> None:
    nums, capabilities = tuple(count for count, _ in kinds), capable(*(speed for _, speed in kinds))
    ones = (1,) * len(nums)
    tried = [evaluate(nums, ones, a, capabilities, workers) for a in product(range(workers + 1), repeat=len(nums))]
    best = max((one.perf for one in tried if one is not None), default=None)
    found = configure(nums, capabilities, workers)
    assert (found is None) == (best is None) == (sum(nums) == 0)
    if found is not None and best is not None:
        assert found.perf == pytest.approx(best)
        assert -1e-9 <= found.waste < 1


@given(st.lists(st.tuples(st.integers(0, 4), speeds, st.integers(1, 2)), min_size=1, max_size=3), st.integers(1, 12))
def test_every_worker_is_on_exactly_one_device(kinds: list[tuple[int, float, int]], workers: int) -> None:
    capabilities = [Capability(speed, most, 0.7) for _, speed, most in kinds]
    found = configure(tuple(count for count, _, _ in kinds), capabilities, workers)
    assume(found is not None)
    assert found is not None
    devices = [(10 * i + d, i) for i, count in enumerate(found.nums) for d in range(count)]
    placed = workers_of(found, devices, workers)
    assert sorted(worker for those in placed.values() for worker in those) == list(range(workers))
    for device, kind in devices:
        assert len(placed[device]) <= found.executors[kind] * found.threads[kind]
    # A step ends with the slowest device: that is what Eq. 1e says of it.
    slowest = max(
        len(placed[device]) / (found.executors[kind] * capabilities[kind].each(found.executors[kind]))
        for device, kind in devices
    )
    assert workers / slowest >= found.perf * (1 - 1e-9)


def test_workers_are_not_spread_over_other_devices() -> None:
    found = configure((1, 2), capable(2.0, 1.0), 4)
    assert found is not None
    with pytest.raises(ValueError, match=r"there are \(2, 1\) devices of the kinds"):
        workers_of(found, [(0, 0), (1, 0), (2, 1)], 4)


# The intra-job scheduler


def test_proposals_go_by_speed_up_for_each_device_then_by_their_number() -> None:
    found = database(8, 1.0).proposals("a", (1,), (7,), top=9)
    # 5 .. 7 devices take as many turns as 4; 3 take three.
    assert [(one.count, round(one.speedup, 3)) for one in found] == [(7, 1.0), (3, 1.0), (1, 1.0), (2, 0.833)]
    assert len(database(8, 1.0).proposals("a", (1,), (7,), top=2)) == 2
    assert [one.count for one in database(8, 1.0).proposals("a", (1,), (7,), top=9, growth=2)] == [1]


def test_wasteful_configurations_are_ruled_out() -> None:
    # 5 workers on 4 devices take two turns: 3 of 8 places are empty, 37.5 %.
    assert [one.nums for one in database(5, 1.0).proposals("a", (2,), (2,), top=9)] == [(3,)]
    assert [one.nums for one in database(5, 1.0, max_waste=0.1).proposals("a", (2,), (2,), top=9)] == []


def test_slow_devices_are_given_back_for_fast_ones() -> None:
    found = database(4, 2.0, 1.0).proposals("a", (0, 4), (4, 0), top=9)
    assert [(one.count, one.nums, one.speedup) for one in found] == [(4, (4, 0), 0.25)]


def test_more_devices_than_its_least_are_all_that_a_job_gives_up() -> None:
    assert database(8, 1.0).trimmed((7,)) == (4,)
    assert database(8, 1.0, least=6).trimmed((7,)) == (6,)


def test_a_job_that_was_faster_before_goes_back_and_does_not_ask_again() -> None:
    one = database(8, 1.0)
    seen: dict[tuple[int, ...], float] = {(2,): 2.0, (4,): 1.5}
    one.learn(lambda nums: seen.get(nums))
    assert one.fall_back((4,), seen) == (2,)
    assert one.fall_back((2,), seen) == (2,)
    assert (4,) not in [proposal.nums for proposal in one.proposals("a", (2,), (6,), top=9)]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), speeds), min_size=1, max_size=3),
    st.integers(1, 12),
    st.sampled_from([0.1, 0.3, 1.0]),
)
def test_no_proposal_slows_its_job_down(kinds: list[tuple[int, int, float]], workers: int, waste: float) -> None:
    held, free = tuple(h for h, _, _ in kinds), tuple(f for _, f, _ in kinds)
    assume(sum(held) <= workers)
    one = database(workers, *(speed for _, _, speed in kinds), max_waste=waste)
    for proposal in one.proposals("a", held, free, top=5):
        best = one.best(proposal.nums)
        assert best is not None and best.perf > one.perf(held) and proposal.speedup > 0
        assert best.waste <= waste + 1e-9
        assert proposal.nums[proposal.kind] == held[proposal.kind] + proposal.count
        assert proposal.count <= free[proposal.kind] and sum(proposal.nums) <= workers


# Algorithm 1


def test_the_best_proposals_that_fit_are_approved() -> None:
    first, second = Proposal("a", 0, 3, (4,), 0.9), Proposal("a", 0, 1, (2,), 0.8)
    large, small = Proposal("b", 0, 2, (3,), 0.5), Proposal("c", 0, 1, (2,), 0.5)
    assert approved([second, small, large, first], (3,)) == [first]
    assert approved([second, small, large, first], (2,)) == [second, small], "what does not fit is passed over"
    assert approved([small, large], (3,)) == [large, small], "more devices first where each brings as much"
    assert approved([first], (0,)) == []


# Plans


def plan(state: State, **parameters: object) -> dict[str, tuple[int, ...]]:
    return EasyScale(**parameters).plan(state).whole_of(state.running)  # type: ignore[arg-type]


def test_a_job_alone_gets_all_that_helps() -> None:
    # Two workers on each fast device and one on each slow one: 12.
    assert plan(State.of(MIXED, [job("a", 12)])) == {"a": tuple(range(8))}
    assert plan(State.of(MIXED, [job("a", 4)])) == {"a": (0, 1, 2, 3)}
    assert plan(State.of(MIXED, [job("a", 12)]), heterogeneous=False) == {"a": (0, 1, 2, 3)}
    assert plan(State.of(MIXED, [job("a", 12, kind="slow", mixed_kinds=False)])) == {"a": (4, 5, 6, 7)}


def test_whoever_waits_comes_before_those_who_grow() -> None:
    jobs = [job(f"job-{i}", 4, mixed_kinds=False, arrival=float(i)) for i in range(5)]
    found = plan(State.of(MIXED, jobs, {"job-0": (0,)}))
    assert {name: len(devices) for name, devices in found.items()} == {f"job-{i}": 1 for i in range(4)}


def test_without_kinds_the_rate_curve_decides() -> None:
    cluster = replace(MIXED, kinds=())
    alike = replace(job("a", 8, kind=""), scaling=None)
    assert plan(State.of(cluster, [alike])) == {"a": tuple(range(8))}


def test_growth_is_bounded_where_it_is_said_so() -> None:
    running = {"a": (0,)}
    assert len(plan(State.of(MIXED, [job("a", 12)], running), growth=2)["a"]) == 2
    assert len(plan(State.of(MIXED, [job("a", 12)], running), growth=4)["a"]) == 4


def test_of_equal_proposals_that_of_who_has_held_its_devices_for_longest_wins() -> None:
    alike = [replace(job(name, 2, kind=""), scaling=None, since=since) for name, since in [("a", 5.0), ("b", 0.0)]]
    for running in ({"a": (0,), "b": (1,)}, {"b": (1,), "a": (0,)}):
        assert plan(State.of(Cluster((3,)), alike, running)) == {"a": (0,), "b": (1, 2)}


def test_what_has_changed_is_looked_at_in_the_next_interval() -> None:
    assert EasyScale(interval=60).plan(State.of(MIXED, [job("a", 12)], time=61.0)).wake == 120
    assert EasyScale().plan(State.of(MIXED, [job("a", 12)], time=61.0)).wake == 121
    assert EasyScale().plan(State.of(MIXED, [])).wake == math.inf
    assert EasyScale(interval=60).trigger.due(61.0, 1) == 120 and EasyScale().trigger.due(61.0, 1) == 61
    assert EasyScale(interval=60).trigger.due(61.0, 1, urgent=True) == 61


def test_what_a_rate_curve_has_learnt_makes_a_job_go_back() -> None:
    cluster = Cluster((8,))
    learnt = replace(job("a", 8), scaling=None, rate=RateCurve({1: 2.0, 2: 4.0, 4: 3.0}, 8, workers=8))
    assert plan(State.of(cluster, [learnt], {"a": (0, 1, 2, 3)})) == {"a": (0, 1)}


def test_a_guaranteed_job_gets_its_gang_in_the_same_plan_from_those_who_miss_it_least() -> None:
    cluster = Cluster((4, 4), ("fast", "fast"))
    jobs = [job("a", 4, mixed_kinds=False), job("b", 8, mixed_kinds=False, arrival=1.0)]
    running = {"a": (0, 1, 2, 3), "b": (4, 5, 6, 7)}
    serving = job("s", 2, gang=2, guaranteed=True, mixed_kinds=False, arrival=2.0)
    found = EasyScale().plan(State.of(cluster, [*jobs, serving], running, time=61.0))
    # Without one device a is half as fast, b loses a third, and without another a quarter of the rest.
    assert found.whole_of(running) == {"a": (0, 1, 2, 3), "b": (4, 5), "s": (6, 7)}
    assert found.stopped == ()


def test_gangs_of_elastic_jobs_stop_as_a_whole() -> None:
    serving = job("s", 2, gang=2, guaranteed=True, kind="fast", mixed_kinds=False)
    jobs = [job("a", 4, gang=4, mixed_kinds=False), serving]
    found = EasyScale(min_share=1.0).plan(State.of(MIXED, jobs, {"a": (0, 1, 2, 3)}, time=61.0))
    assert found.allocation == {"s": (0, 1)} and found.stopped == ("a",)


def test_guaranteed_jobs_take_nothing_from_each_other() -> None:
    jobs = [job(name, 3, gang=3, guaranteed=True, mixed_kinds=False) for name in "st"]
    found = EasyScale().plan(State.of(MIXED, jobs, {"s": (0, 1, 2)}))
    assert found.allocation == {} and found.stopped == () and found.dropped == {}


def test_a_gang_that_waits_is_not_overtaken() -> None:
    large, small = job("a", 4, gang=4, mixed_kinds=False), job("b", 2, gang=1, mixed_kinds=False, arrival=1.0)
    running = {"r": (0,)}
    fixed = job("r", 1, gang=1, mixed_kinds=False)
    assert plan(State.of(MIXED, [fixed, large, small], running), min_share=1.0) == running


def test_what_can_never_run_is_dropped() -> None:
    jobs = [job("s", 9, gang=9, guaranteed=True), job("t", 5, gang=5, mixed_kinds=False)]
    dropped = EasyScale(min_share=1.0).plan(State.of(MIXED, jobs)).dropped
    assert dropped["s"] == "it asks for 9 devices; there are fewer"
    assert dropped["t"] == "it asks for 5 devices or more of kind fast; there are fewer"


def test_after_a_slow_down_the_new_devices_are_released() -> None:
    held = {"a": (0, 1)}
    before = EasyScale().plan(State.of(MIXED, [job("a", 4, mixed_kinds=False, pace=4.0)], held))
    assert before.allocation == {"a": (0, 1, 2, 3)}
    more = {"a": (0, 1, 2, 3)}
    slower = State.of(MIXED, [job("a", 4, mixed_kinds=False, pace=3.0)], more, promises=before.promises)
    after = EasyScale().plan(slower)
    assert after.allocation == {"a": (0, 1)}
    again = State.of(
        MIXED, [job("a", 4, mixed_kinds=False, pace=4.0)], {"a": (0, 1)}, promises={**before.promises, **after.promises}
    )
    assert EasyScale().plan(again).allocation == {}


@given(states(), st.booleans(), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 2.0]))
@settings(max_examples=120)
def test_the_laws_of_a_plan(state: State, heterogeneous: bool, min_share: float, growth: float) -> None:
    one = EasyScale(heterogeneous=heterogeneous, min_share=min_share, growth=growth, interval=60)
    found = one.plan(state)
    whole = found.whole_of(state.running)
    validate(whole, state)
    companions = Companions(state, Rules(heterogeneous, min_share))
    served = any(state.by_name[name].guaranteed for name in found.allocation)
    for name, devices in whole.items():
        current, companion = state.by_name[name], companions.of(state.by_name[name])
        nums = companions.counts(devices)
        if current.guaranteed:
            assert len(devices) == current.gang and devices == state.running.get(name, devices)
            continue
        best = companion.best(nums)
        kinds = companions.kinds
        assert best is not None and sum(nums) >= min(companion.least, len(state.running.get(name, devices)))
        pairs = [(device, kinds.index(state.cluster.kind_of(device))) for device in devices]
        placed = workers_of(best, pairs, companion.workers)
        assert sorted(w for those in placed.values() for w in those) == list(range(companion.workers))
        if name in state.running and not served:
            assert companion.perf(nums) >= companion.perf(companions.counts(state.running[name])) * (1 - 1e-9)
        if name not in state.running or not current.mixed_kinds:
            assert all(companion.there[kind] for _, kind in pairs) or devices == state.running.get(name)


@given(states(), st.integers(1, 4), st.booleans())
@settings(max_examples=120)
def test_guaranteed_jobs_never_wait_for_elastic_ones(state: State, gang: int, mixed: bool) -> None:
    late = job("late", gang, gang=gang, guaranteed=True, mixed_kinds=mixed, arrival=60.0)
    state = replace(state, by_name={**state.by_name, "late": late}, time=61.0)
    whole = EasyScale().plan(state).whole_of(state.running)
    guaranteed = [one for one in state.jobs if one.guaranteed]
    kept = {device for one in guaranteed for device in whole.get(one.name, ())}
    kinds = [state.cluster.kind_of(device) for device in range(state.cluster.size) if device not in kept]
    for one in guaranteed:
        if one.mixed_kinds:
            left = len(kinds)
        elif one.kind:
            left = kinds.count(one.kind)
        else:
            left = max(kinds.count("fast"), kinds.count("slow"))
        assert one.name in whole or left < one.gang


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"heterogeneous": 1}, "heterogeneous is 1; it must be true or false"),
        ({"waste": 0}, "waste is 0; it must be a number above 0 and at most 1"),
        ({"interference": 2}, "interference is 2"),
        ({"min_share": -0.1}, "min_share is -0.1; it must be 0"),
        ({"top_k": 0}, "top_k is 0; a job makes at least one proposal"),
        ({"growth": 1}, "growth is 1; it must be above 1"),
        ({"interval": -1}, "interval is -1; it must be a number of seconds"),
        ({"quota": 0}, "quota is 0; it must be a number above 0 and at most 1"),
        ({"quota": 0.5, "headroom": 0.6}, "headroom is 0.6; it must be 0 .none. to the quota, 0.5"),
        ({"patience": -1}, "patience is -1; it must be a number of seconds"),
        ({"executors": {"v100": 0}}, "executors on v100 is 0; it must be 1 or more"),
    ],
)
def test_parameters_out_of_their_range_are_named(parameters: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=f"policy easyscale: {told}"):
        policy("easyscale", **parameters)
