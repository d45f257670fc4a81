"""Jobs that guaranteed ones took devices from: who waits for them, and who has them back (EasyScale, SC'23, 3.4.2)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.easyscale.companions import ClaimPaces, Companions, Rules, is_worth_returning, is_worth_waiting
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State, validate
from fleet.scheduling.policies.easyscale import EasyScale
from tests.scheduling.support.kinds_of_device import MIXED, job, states

RESTART = 10.0


def elastic(name: str = "a", workers: int = 4, **more: Any) -> JobState:
    return job(name, workers, restart=RESTART, remaining=1e6, **more)


def serving(seconds: float, gang: int = 2, **more: Any) -> JobState:
    """It takes so long on its gang, once it has it; formed in no time."""
    return job(
        "s", gang, gang=gang, guaranteed=True, mixed_kinds=False, arrival=1.0, remaining=2.0 * gang * seconds, **more
    )


def plan(state: State, **parameters: Any) -> Plan:
    found = EasyScale(**parameters).plan(state)
    validate(found.whole_of(state.running), state)
    return found


def later(state: State, found: Plan, time: float, *gone: str, **more: Any) -> State:
    """The state once the plan was carried out, and these jobs have ended."""
    running = {name: held for name, held in found.whole_of(state.running).items() if name not in gone}
    jobs = {name: one for name, one in state.by_name.items() if name not in gone}
    promises = {**state.promises, **found.promises}
    return replace(state, by_name={**jobs, **more}, running=running, promises=promises, time=time)


# The costs


def test_a_move_pays_once_it_makes_up_for_what_it_costs() -> None:
    paces = ClaimPaces(held=2.0, other=3.0, whole=4.0)
    # 3 (T - 10) samples elsewhere, 2 T where it is: as many at T = 30.
    assert is_worth_waiting(paces, 29.0, RESTART, leaves=False) and not is_worth_waiting(paces, 31.0, RESTART, False)
    assert is_worth_waiting(paces, 9.0, RESTART, leaves=True) and not is_worth_waiting(paces, 11.0, RESTART, True)
    assert not is_worth_waiting(replace(paces, other=4.0), 1.0, RESTART, leaves=False), "as good as its own"
    assert not is_worth_waiting(paces, math.inf, RESTART, leaves=False)


def test_going_back_pays_where_enough_is_left() -> None:
    assert is_worth_returning(2.0, 4.0, 41.0, RESTART) and not is_worth_returning(2.0, 4.0, 39.0, RESTART)
    assert is_worth_returning(2.0, 4.0, math.inf, RESTART) and not is_worth_returning(4.0, 4.0, math.inf, RESTART)


less = st.floats(0, 0.99)


@given(st.floats(0.1, 50), less, less, st.floats(0.1, 30), less, less, st.booleans())
def test_whoever_waits_for_long_waits_for_less_time_too(
    whole: float, of_whole: float, of_other: float, restart: float, of_longest: float, of_longer: float, leaves: bool
) -> None:
    other = whole * of_whole
    paces = ClaimPaces(held=other * of_other, other=other, whole=whole)
    longest = restart if leaves else restart / (1 - of_other)  # where p_held T = p_other (T - c)
    longer = longest * of_longest
    assert is_worth_waiting(paces, longer, restart, leaves)
    assert is_worth_waiting(paces, longer * of_longer, restart, leaves)
    assert not is_worth_waiting(replace(paces, other=whole), longer, restart, leaves), "as good as its own"


# Plans


def test_its_devices_come_back_to_the_job_and_not_to_whoever_came_meanwhile() -> None:
    before = State.of(MIXED, [elastic(mixed_kinds=False), serving(100.0)], {"a": (0, 1, 2, 3)}, time=1.0)
    taken = plan(before)
    assert taken.allocation == {"a": (0, 1), "s": (2, 3)}
    newcomer = elastic("new", mixed_kinds=False, arrival=50.0)
    ended = later(before, taken, 101.0, "s", new=newcomer)
    assert plan(ended).allocation == {"a": (0, 1, 2, 3)}
    late = replace(ended, time=302.0)  # 300 s after it lost them
    assert plan(late).allocation["new"] == (2, 3)
    without = later(before, plan(before, patience=0.0), 101.0, "s", new=newcomer)
    assert plan(without, patience=0.0).allocation["new"] == (2, 3)


@pytest.mark.parametrize(("seconds", "moves"), [(9.0, False), (11.0, True)])
def test_others_of_another_kind_are_taken_where_that_pays_before_the_own_are_back(seconds: float, moves: bool) -> None:
    before = State.of(MIXED, [elastic(workers=12), serving(seconds, kind="fast")], {"a": (0, 1, 2, 3)}, time=1.0)
    found = plan(before).allocation
    assert found["s"] == (2, 3) and found["a"] == ((0, 1, 4, 5) if moves else (0, 1))


def test_a_job_that_may_have_both_goes_to_others_once_its_own_are_long_in_coming() -> None:
    one = elastic(workers=24, fast=3.0, slow=1.0)
    before = State.of(MIXED, [one, serving(9.0, kind="fast")], {"a": (0, 1, 2, 3)}, time=1.0)
    waits = later(before, plan(before), 2.0)
    assert waits.running["a"] == (0, 1) and plan(waits).allocation == {}
    slower = {**waits.by_name, "s": waits.by_name["s"].changed(remaining=4000.0)}
    assert plan(replace(waits, by_name=slower)).allocation["a"] == (0, 1, 4, 5, 6, 7)


def test_a_job_below_its_least_waits_with_its_devices_kept_where_nobody_could_use_them() -> None:
    one = elastic(mixed_kinds=False, minimum_devices=4, arrival=0.5)
    other = elastic("b", mixed_kinds=False)
    before = State.of(MIXED, [one, other, serving(5.0)], {"a": (0, 1, 2, 3)}, time=1.0)
    found = plan(before)
    assert found.allocation == {"s": (0, 1)} and found.stopped == ("a",), "two devices are kept for a"
    ended = later(before, found, 6.0, "s")
    assert plan(ended).allocation == {"a": (0, 1, 2, 3)}
    long = State.of(MIXED, [one, other, serving(21.0)], {"a": (0, 1, 2, 3)}, time=1.0)
    assert plan(long).allocation == {"s": (0, 1), "b": (2,)}


def test_equal_devices_are_as_good_as_the_own() -> None:
    late, early = elastic("late", 2, mixed_kinds=False, minimum_devices=2, arrival=0.5), elastic("early", 2, gang=2)
    early = early.changed(mixed_kinds=False, minimum_devices=2)
    held = {"late": (0, 1), "early": (2, 3)}
    before = State.of(MIXED, [early, late, serving(5.0)], held, time=1.0)
    found = plan(before)
    assert found.allocation == {"s": (0, 1)} and found.stopped == ("late",)
    assert plan(later(before, found, 2.0)).allocation == {}, "it waits"
    assert plan(later(before, found, 2.0, "early")).allocation == {"late": (2, 3)}


def test_a_claim_lapses_and_the_plan_is_asked_for_then() -> None:
    before = State.of(MIXED, [elastic(mixed_kinds=False), serving(1000.0)], {"a": (0, 1, 2, 3)}, time=1.0)
    found = plan(before, patience=40.0)
    assert found.promises["a"].claim.devices == (2, 3) and found.promises["a"].claim.until == 41.0
    assert found.wake == 41.0 and plan(before, patience=40.0, interval=60).wake == 60.0
    after = plan(later(before, found, 41.0), patience=40.0)
    assert after.promises["a"].claim is None and after.wake == math.inf


def test_what_is_lost_for_good_or_held_by_others_is_claimed_no_more() -> None:
    before = State.of(MIXED, [elastic(workers=12, mixed_kinds=False), serving(100.0)], {"a": (0, 1, 2, 3)}, time=1.0)
    ended = later(before, plan(before), 101.0, "s")
    assert plan(replace(ended, unavailable=frozenset({3}))).allocation == {"a": (0, 1, 2)}
    other = elastic("b", 1, mixed_kinds=False)
    held = replace(ended, by_name={**ended.by_name, "b": other}, running={**ended.running, "b": (2,)})
    assert plan(held).allocation == {"a": (0, 1, 3)}


@given(states(least=True), st.integers(1, 4), st.floats(0.5, 400), st.sampled_from([0.0, 5.0, 50.0]))
@settings(max_examples=200)
def test_nobody_is_slower_once_a_guaranteed_job_has_gone(state: State, gang: int, seconds: float, cost: float) -> None:
    jobs = {name: one.changed(restart=cost, remaining=1e5) for name, one in state.by_name.items() if not one.guaranteed}
    running = {name: held for name, held in state.running.items() if name in jobs}
    urgent = serving(seconds, gang).changed(name="urgent", arrival=120.0)
    state = replace(state, by_name={**jobs, "urgent": urgent}, running=running)
    taken = plan(state)
    ended = later(state, taken, 120.0 + min(seconds, 299.0), "urgent")
    again = plan(ended)
    whole, companions = again.whole_of(ended.running), Companions(ended, Rules())
    for name, held in ended.running.items():
        database = companions.of(ended.by_name[name])
        now, then = (database.perf(companions.counts(devices)) for devices in (held, whole.get(name, ())))
        assert then >= now * (1 - 1e-9), name
    assert set(ended.running) <= set(whole)
