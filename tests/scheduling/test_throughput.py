"""Elastic scaling with variable batch size: the analyser and the dynamic program by hand, and against brute force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State, Trigger, validate
from fleet.scheduling.policies.throughput import (
    AllReduceTimes,
    Scalability,
    batches_of,
    best_counts,
    curve_of,
    least_count,
)
from fleet.spec.policies import policy
from tests.scheduling.support.driving import drive
from tests.scheduling.support.printed import curve
from tests.scheduling.support.strategies import clusters, jobs

# t_proc is 1 s for 8 samples and 2 s for 16; 10M weights take 1 s on 2 devices and 2 s on 4.
TIMES = AllReduceTimes((10e6, 20e6), {2: (1.0, 3.0), 4: (2.0, 6.0)})
SCALING = Scalability({8: 1.0, 16: 2.0}, 10e6, TIMES)


def job(name: str, batches: tuple[int, int] | None = (8, 64), batch: int = 8, **more: object) -> JobState:
    return JobState(name, curve(8, 8, 8, 8), 4, batch=batch, batches=batches, scaling=SCALING, **more)  # type: ignore[arg-type]


def test_the_time_to_sum_is_interpolated_in_weights_and_devices() -> None:
    assert TIMES.seconds(10e6).tolist() == [0, 1, 1.5, 2]
    assert TIMES.seconds(15e6).tolist() == [0, 2, 3, 4]
    assert TIMES.seconds(5e6).tolist() == [0, 0.5, 0.75, 1]
    assert TIMES.seconds(40e6).tolist() == [0, 6, 9, 12]


def test_rates_by_hand() -> None:
    assert SCALING.single == 8 and SCALING.fits == 16 and SCALING.limit == 4
    assert SCALING.rate(1, 16) == 8 and SCALING.rate(1, 12) == 8
    assert SCALING.rate(2, 16) == pytest.approx(16 / (1 + 1))
    assert SCALING.rate(3, 16) == pytest.approx(16 / (1 + 1.5)), "6 samples take no less than 8"
    assert SCALING.rate(2, 17) == pytest.approx(17 / (9 / 8 + 1)), "the device with the most, 9 samples, paces"
    assert SCALING.rate(1, 17) == 0 and SCALING.rate(2, 33) == 0, "it does not fit"
    assert SCALING.rate(3, 2) == 0 and SCALING.rate(5, 64) == 0
    assert SCALING.rate(4) == SCALING.rate(4, 64) == pytest.approx(64 / (2 + 2))
    assert SCALING.worker_rate("") == 0.5


def test_the_best_batch_is_as_large_as_the_devices_and_the_range_allow() -> None:
    best = SCALING.best(8, 40, 4)
    assert best.batches.tolist() == [8, 32, 39, 40], "8 to 16 are alike on one; 13 each beat 14, 14 and 12"
    assert best.factors.tolist() == pytest.approx([1, 32 / 3 / 8, 39 / (1.625 + 1.5) / 8, 40 / (1.25 + 2) / 8])
    assert SCALING.best(40, 40, 4).factors[:2].tolist() == [-np.inf, -np.inf], "40 samples need 3 devices"
    assert len(SCALING.best(8, 40, 2).factors) == 2


def test_the_range_by_mode() -> None:
    assert [batches_of(job("a"), mode) for mode in ("variable", "fixed", "max", "min")] == [
        (8, 64), (8, 8), (64, 64), (8, 8),
    ]  # fmt: skip
    assert batches_of(job("a", None, 12), "max") == (12, 12)


def test_a_job_without_batches_scales_as_its_curve_says() -> None:
    plain = JobState("a", curve(10, 15, 12), 3)
    assert curve_of(plain, "variable", 10).factors.tolist() == [1, 1.5, 1.2]


class Steep:
    """A scaling of somebody else: one rate at a time."""

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        return float(devices * (batch or 0)) if batch is None or batch <= 10 * devices else 0.0

    def worker_rate(self, kind: str) -> float:
        return 1.0


def test_any_scaling_can_be_asked() -> None:
    asked = JobState("a", curve(1), 3, batch=5, batches=(5, 1000), scaling=Steep())
    found = curve_of(asked, "variable", 3)
    assert all(0 < batch <= 10 * count for count, batch in enumerate(found.batches.tolist(), 1))
    assert found.factors[0] == 1 and (np.diff(found.factors) >= 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AllReduceTimes((), {}), "weights are"),
        (lambda: AllReduceTimes((2.0, 1.0), {}), "ascend"),
        (lambda: AllReduceTimes((1.0,), {2: (float("nan"),)}), "on 2 devices; one time of 0 or more"),
        (lambda: Scalability({}, 1, TIMES), "measure at least one"),
        (lambda: Scalability({4: 0.0}, 1, TIMES), "an iteration with 4 samples took 0.0 s"),
        (lambda: Scalability({4: 1.0}, -1, TIMES), "weights is -1"),
        (lambda: SCALING.best(9, 8, 4), "a batch of 9 to 8 samples"),
    ],
)
def test_measurements_that_cannot_be_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def rows(*gains: list[float]) -> list[np.ndarray]:
    return [np.array(row, float) for row in gains]


def test_the_dynamic_program_by_hand() -> None:
    # With 4 devices: 3 + 1 gives 2.5 + 1, 2 + 2 gives 1.6 + 1.6, 1 + 3 gives 1 + 1.7.
    gains = rows([1, 1.6, 2.5], [1, 1.6, 1.7])
    assert best_counts(gains, 4) == [3, 1]
    assert best_counts(gains, 5) == [3, 2]
    assert best_counts(gains, 9) == [3, 3]
    assert best_counts(gains, 2) == [1, 1]
    assert best_counts(gains, 1) is None
    assert best_counts([], 3) == []


def test_devices_that_bring_nothing_stay_free() -> None:
    assert best_counts(rows([1, 0.9, 0.8]), 3) == [1]
    assert best_counts(rows([1, 1, 1]), 3) == [1]


def test_a_job_that_cannot_run_on_few_devices_gets_enough_or_nothing_is_feasible() -> None:
    low = -np.inf
    assert best_counts(rows([low, low, 1, 5], [1, 3]), 4) == [3, 1]
    assert best_counts(rows([low, low, 1, 5], [1, 3]), 5) == [4, 1]
    assert best_counts(rows([low, low, 1, 5], [1, 3]), 3) is None
    assert best_counts(rows([low, low]), 9) is None


gain = st.sampled_from([-np.inf, 0.0, 0.5, 1.0, 1.5, 2.0]) | st.floats(-3, 3)


@given(st.lists(st.lists(gain, min_size=1, max_size=4), max_size=4), st.integers(0, 12))
def test_the_dynamic_program_equals_brute_force(table: list[list[float]], devices: int) -> None:
    gains = rows(*table)
    found = best_counts(gains, devices)
    sums = {
        counts: sum(row[k - 1] for row, k in zip(table, counts))
        for counts in product(*(range(1, len(row) + 1) for row in table))
        if sum(counts) <= devices
    }
    feasible = {counts: total for counts, total in sums.items() if total > -np.inf}
    if not feasible:
        assert found is None
        return
    assert found is not None and sum(found) <= devices
    assert sums[tuple(found)] == pytest.approx(max(feasible.values()))


@given(st.lists(gain, max_size=6))
def test_the_least_count_is_the_first_that_is_possible(row: list[float]) -> None:
    found = least_count(np.array(row, float))
    assert found == next((k for k, value in enumerate(row, 1) if value > -np.inf), None)


def planned(jobs: list[JobState], size: int, running: Mapping[str, tuple[int, ...]] | None = None, **more: object):  # type: ignore[no-untyped-def]
    state = State.of(Cluster((size,)), jobs, running or {})
    plan = policy("throughput", **more).plan(state)
    validate(plan.allocation, state)
    return plan


def sizes(plan) -> dict[str, int]:  # type: ignore[no-untyped-def]
    return {name: len(devices) for name, devices in sorted(plan.allocation.items())}


def test_devices_and_batches_by_hand() -> None:
    # On 1, 2, 3, 4 devices: 1, 4/3, 48/3.5/8 = 1.71 and 2. Two jobs on 4 devices: 1.71 + 1 beats 4/3 + 4/3.
    plan = planned([job("a"), job("b", arrival=1)], 4)
    assert sizes(plan) == {"a": 3, "b": 1} and dict(plan.batches) == {"a": 48}
    assert sizes(planned([job("a"), job("b", arrival=1)], 2)) == {"a": 1, "b": 1}


def test_the_baseline_keeps_the_batch_and_needs_devices_for_it() -> None:
    # 40 samples need 3 devices; one more: 40 / (1.25 + 2) is less than 40 / (1.75 + 1.5).
    jobs = [job("a", batch=40), job("b", batch=16, arrival=1)]
    fixed = planned(jobs, 4, batch="fixed")
    assert sizes(fixed) == {"a": 3, "b": 1} and not fixed.batches
    assert sizes(planned(jobs, 3, batch="fixed")) == {"a": 3}
    assert sizes(planned(jobs, 4, batch="max")) == {"a": 4} and planned(jobs, 4, batch="max").batches == {"a": 64}
    assert sizes(planned(jobs, 4, batch="min")) == {"a": 1, "b": 1}


def test_those_who_do_not_fit_wait_or_are_dropped() -> None:
    jobs = [job("a", batch=40), job("b", batch=40, arrival=1), job("c", batch=8, arrival=2)]
    assert sizes(planned(jobs, 4, batch="fixed")) == {"a": 3}
    assert sizes(planned(jobs, 4, batch="fixed", backfill=True)) == {"a": 3, "c": 1}
    dropping = planned(jobs, 4, batch="fixed", queue=False)
    assert sizes(dropping) == {"a": 3, "c": 1}
    assert dict(dropping.dropped) == {"b": "it needs 3 devices, and 1 are left beside those that the others need"}


def test_a_job_that_can_never_run_is_dropped_with_the_reason() -> None:
    assert planned([job("a", batch=64)], 3, batch="fixed").dropped == {
        "a": "its smallest batch needs 4 devices; the cluster has 3"
    }
    assert (
        "none of its batches fits on 2 devices" in planned([job("a", batch=64)], 4, batch="fixed", most=2).dropped["a"]
    )


def test_runners_stay_in_and_keep_their_devices_where_their_count_stays() -> None:
    running = {"b": (1, 2)}
    plan = planned([job("a"), job("b", arrival=1, held=2), job("c", arrival=2)], 3, running)
    assert sizes(plan) == {"a": 1, "b": 1, "c": 1}
    plan = planned([job("a"), job("b", arrival=1, held=1)], 4, {"b": (2,)})
    assert plan.allocation["b"] == (2,) and len(plan.allocation["a"]) == 3, "who gains alike, changes least"


def test_equal_jobs_are_not_moved_for_nothing() -> None:
    # All three counts 2, 1, 1 are alike; whoever holds two keeps them, also where each has a curve of its own.
    plain = [JobState(name, curve(10, 18), 2, held=1 + (name == "b"), arrival=ord(name)) for name in "abc"]
    running = {"a": (3,), "b": (0, 1), "c": (2,)}
    assert planned(plain, 4, running).allocation == running


def test_who_could_not_start_yet_is_planned_again() -> None:
    # The live driver waits for a's devices; it asks anew when a has left them, and says only that a has changed.
    chosen, cluster = policy("throughput"), Cluster((2,))
    a, b = job("a", held=2), job("b", arrival=1)
    memo = chosen.plan(State.of(cluster, [a, b], {"a": (0, 1)})).memo
    left = [replace(a, held=0, attained=5.0), b]
    for changed in (("a",), ()):
        plan = chosen.plan(State.of(cluster, left, changed=changed, memo=memo))
        assert plan.allocation == chosen.plan(State.of(cluster, left)).allocation and sizes(plan) == {"a": 1, "b": 1}
        memo = plan.memo


def test_who_holds_fewer_devices_than_its_batch_needs_goes_on_as_it_is() -> None:
    plan = planned([job("a", batch=64, held=2), job("b", arrival=1)], 4, {"a": (0, 1)}, batch="max", queue=False)
    assert plan.allocation == {"a": (0, 1)} and set(plan.dropped) == {"b"}


def test_priorities_weigh_and_order_the_queue() -> None:
    jobs = [job("a"), job("b", arrival=1, priority=1.0)]
    assert sizes(planned(jobs, 1)) == {"a": 1}
    assert sizes(planned(jobs, 1, priority_base=2.0)) == {"b": 1}
    assert sizes(planned(jobs, 4, priority_base=2.0)) == {"a": 1, "b": 3}


def test_a_price_leaves_devices_free_that_bring_less() -> None:
    # 1, 1.33, 1.71, 2: the fourth device brings 0.29, the second and third 0.36 each in the mean.
    assert [sizes(planned([job("a")], 4, price=price))["a"] for price in (0.0, 0.3, 0.4)] == [4, 3, 1]


def test_a_move_must_bring_what_staying_is_worth() -> None:
    held = {"a": (0, 1, 2)}
    assert sizes(planned([job("a", held=3)], 4, held)) == {"a": 4}
    assert sizes(planned([job("a", held=3)], 4, held, stay=0.3)) == {"a": 3}


def test_the_trigger_is_hybrid() -> None:
    assert policy("throughput").trigger == Trigger()
    assert policy("throughput", interval=600, events=4).trigger == Trigger(600, 4)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"batch": "big"}, "policy throughput: batch is 'big'; it must be one of variable, fixed, max, min"),
        ({"most": 0}, "most is 0"),
        ({"most": 2.5}, "most is 2.5"),
        ({"queue": 1}, "queue is 1; it must be true or false"),
        ({"priority_base": 0.5}, "priority_base is 0.5; it must be a number of 1 or more"),
        ({"price": float("nan")}, "price is nan"),
        ({"stay": -1}, "stay is -1"),
        ({"interval": -1}, "interval is -1"),
    ],
)
def test_mistakes_are_named(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy("throughput", **parameters)


@st.composite
def states(draw: st.DrawFn) -> State:
    """Jobs of some kinds, of which some run where their batch lets them."""
    size = draw(st.integers(1, 12))
    scalings = [
        Scalability({4: first, 16: first + draw(st.floats(0.1, 3))}, draw(st.sampled_from([0.0, 5e6, 3e7])), TIMES)
        for first in draw(st.lists(st.floats(0.1, 2), min_size=1, max_size=2))
    ]
    jobs, running, next_device = [], {}, 0
    for index in range(draw(st.integers(0, 8))):
        least = draw(st.integers(1, 40))
        most = draw(st.integers(least, 64))
        batch, held = draw(st.integers(least, most)), 0
        gang = -(-batch // 16)
        if draw(st.booleans()) and next_device + gang <= size:
            held, running[f"job-{index}"] = gang, tuple(range(next_device, next_device + gang))
            next_device += gang
        jobs.append(
            JobState(
                f"job-{index}",
                curve(8, 8, 8, 8),
                4,
                arrival=draw(st.sampled_from([0.0, 1.0])),
                batch=batch,
                held=held,
                batches=(least, most),
                scaling=draw(st.sampled_from(scalings)),
                priority=draw(st.sampled_from([0.0, 1.0])),
            )  # fmt: skip
        )
    lost = frozenset(draw(st.sets(st.integers(0, size - 1), max_size=2)))
    return State.of(Cluster((size,)), jobs, running, {}, lost)


@given(
    states(),
    st.sampled_from(["variable", "fixed", "max", "min"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1.0, 2.0]),
    st.sampled_from([0.0, 0.4]),
)
def test_what_every_plan_keeps(state: State, batch: str, queue: bool, backfill: bool, base: float, stay: float) -> None:
    chosen = policy("throughput", batch=batch, queue=queue, backfill=backfill, priority_base=base, stay=stay)
    plan = chosen.plan(state)
    validate(plan.allocation, state)
    assert sum(map(len, plan.allocation.values())) <= len(state.available), "never more devices than there are"
    for name, devices in plan.allocation.items():
        planned_job = state.by_name[name]
        batch_now = plan.batches.get(name, planned_job.batch)
        assert batch_now is not None
        least, most = planned_job.batches or (batch_now, batch_now)
        assert least <= batch_now <= most
        assert state.running.get(name) == devices or SCALING.fits * len(devices) >= batch_now, "it fits"
        assert batch != "fixed" or name not in plan.batches
    assert set(state.staying) <= set(plan.allocation), "who runs goes on"
    waiting = [member for member in state.waiting if member.name not in plan.allocation]
    assert queue or all(member.name in plan.dropped for member in waiting)
    if waiting:
        needed = {member.name: least_count(curve_of(member, batch, 10).factors) for member in state.jobs}
        held = sum(needed[name] or 0 for name in plan.allocation)
        short = [needed[member.name] for member in waiting if member.name not in plan.dropped]
        pinned = any(len(devices) < (needed[name] or 99) for name, devices in plan.allocation.items())
        if short and not pinned:
            fitting = [held + (count or 99) <= len(state.available) for count in short]
            assert not all(fitting), "the queue is trimmed only where not all can have their devices"
            assert not (backfill and any(fitting))


@settings(max_examples=60, deadline=None)
@given(clusters, jobs(), st.data())
def test_every_job_of_an_ensemble_without_batches_gets_done(
    cluster: Cluster, ensemble: tuple[JobState, ...], data: st.DataObject
) -> None:
    epochs = {member.name: data.draw(st.integers(1, 3)) for member in ensemble}
    run = drive(policy("throughput"), cluster, ensemble, epochs, lambda running: data.draw(st.sampled_from(running)))
    assert sorted(run.done) == sorted(epochs)
