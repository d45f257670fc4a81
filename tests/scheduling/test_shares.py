"""Minimum satisfactory shares and progressive filling, by hand and against brute force."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.scheduling.elasticflow import shares
from fleet.scheduling.elasticflow.shares import (
    Levels,
    Timetable,
    Window,
    fill_levels,
    fill_with_restarts,
    missed_by_moves,
    slot_at,
)
from fleet.scheduling.model.rates import RateCurve

CURVE = RateCurve({1: 1.0, 2: 1.5, 4: 2.0}, 4, limit=4)  # ElasticFlow, Figure 4 (a)
LEVELS = Levels.of(CURVE, 4, 4)


def test_levels_are_powers_of_two_that_are_faster_than_all_below() -> None:
    assert (LEVELS.counts, LEVELS.rates) == ((0, 1, 2, 4), (0.0, 1.0, 1.5, 2.0))
    assert LEVELS.fitting.tolist() == [0, 1, 2, 2, 3]
    jagged = RateCurve({1: 4.0, 2: 3.0, 4: 5.0, 8: 2.0}, 8, limit=8)
    assert Levels.of(jagged, 8, 16).counts == (0, 1, 4)
    assert Levels.of(jagged, 3, 16).counts == (0, 1)
    assert Levels.of(jagged, 8, 2).counts == (0, 1)


def test_a_step_returns_what_it_saves_later() -> None:
    # Figure 4 (a): 1, 0.5 and 0.25 samples/s for each further device, over that of the highest promised level.
    assert [LEVELS.returns(k) for k in range(4)] == [[], [1, 0.5, 0.25], [2, 1, 0.5], [4, 2, 1]]
    growing = Levels.of(RateCurve({1: 1.0, 2: 3.0}, 2, limit=2), 2, 2)
    assert growing.returns(1) == [1, 1]  # no step goes before one below it


def test_the_minimum_satisfactory_share_alone() -> None:
    # One unit of work: 1 device in 1 unit of time, 2 in 2/3, 4 in 1/2 (4.1).
    assert [LEVELS.alone(1.0, seconds) for seconds in (1.0, 2 / 3, 0.5, 0.4)] == [1, 2, 3, None]


def test_the_third_job_of_figure_4() -> None:
    window = Window.of(0.0, 2.0, 1.0)
    assert window is not None
    alone = fill_levels(LEVELS, 3.0, window, np.array([4, 4]))
    beside = fill_levels(LEVELS, 3.0, window, np.array([1, 4]))
    assert alone is not None and LEVELS.devices[alone].tolist() == [2, 2]
    assert beside is not None and LEVELS.devices[beside].tolist() == [1, 4]
    assert fill_levels(LEVELS, 3.0, window, np.array([1, 3])) is None


def test_only_as_many_slots_have_the_highest_level_as_must_and_they_are_the_latest() -> None:
    window = Window.of(0.0, 40.0, 10.0)
    assert window is not None
    numbers = fill_levels(LEVELS, 44.0, window, np.full(4, 4))
    assert numbers is not None and LEVELS.devices[numbers].tolist() == [1, 1, 1, 2]
    one = fill_levels(LEVELS, 12.0, window, np.full(4, 4))
    assert one is not None and LEVELS.devices[one].tolist() == [0, 0, 1, 1]


def test_a_window_has_but_parts_of_its_outer_slots() -> None:
    window = Window.of(13.0, 36.0, 10.0)
    assert window == Window(1, 3, 7.0, 6.0, 10.0) and window is not None and window.seconds == 23.0
    assert window.work(np.array([1, 2, 3], np.uint8), LEVELS.rates) == 7 * 1.0 + 10 * 1.5 + 6 * 2.0
    inside = Window.of(13.0, 16.0, 10.0)
    assert inside is not None and inside.length == 1 and inside.seconds == 3.0
    assert inside.work(np.array([2], np.uint8), LEVELS.rates) == 4.5
    assert Window.of(10.0, 20.0, 10.0) == Window(1, 1, 10.0, 10.0, 10.0)
    assert Window.of(5.0, 5.0, 10.0) is None


@given(st.floats(0, 1e7), st.sampled_from([0.1, 1.0, 60.0, 240.0, 1 / 3]))
def test_a_slot_ends_after_now(now: float, slot: float) -> None:
    assert (slot_at(now, slot) + 1) * slot > now


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=5), st.floats(0, 9.9), st.floats(0.1, 10.0), st.floats(0.1, 60.0)
)
def test_filling_meets_the_deadline_whenever_any_levels_could(
    free: list[int], begin: float, tail: float, work: float
) -> None:
    window = Window.of(begin, begin + tail if len(free) == 1 else 10.0 * (len(free) - 1) + tail, 10.0)
    assert window is not None
    there = np.array((free * 2)[: window.length])
    numbers = fill_levels(LEVELS, work, window, there)
    best = window.work(LEVELS.fitting[there], LEVELS.rates)
    if numbers is None:
        assert best < work * (1 + 1e-9)
    else:
        assert window.work(numbers, LEVELS.rates) >= work * (1 - 1e-9)
        assert (LEVELS.devices[numbers] <= there).all()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 70))
def test_no_levels_under_the_same_ceiling_need_fewer_devices(free: list[int], work: int) -> None:
    window = Window.of(0.0, 10.0 * len(free), 10.0)
    assert window is not None
    numbers = fill_levels(LEVELS, float(work), window, np.array(free))
    assume(numbers is not None)
    assert numbers is not None
    top = int(numbers.max())
    ranges = [range(min(top, int(LEVELS.fitting[devices])) + 1) for devices in free]
    enough = (list(x) for x in itertools.product(*ranges) if sum(LEVELS.rates[i] for i in x) * 10 >= work)
    least = min(sum(LEVELS.counts[i] for i in x) for x in enough)
    # The latest slots at the highest level may be a slot's rounding above the least.
    assert LEVELS.devices[numbers].sum() <= least + LEVELS.counts[top] - LEVELS.counts[top - 1]


def test_a_last_slot_of_microseconds_is_filled_in_a_few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives next to nothing; to add no more than that at each attempt took millions of them."""
    attempts: list[float] = []

    def counted(levels: Levels, work: float, *window: Any) -> Any:
        attempts.append(work)
        return fill_levels(levels, work, *window)

    monkeypatch.setattr(shares, "fill_levels", counted)
    window = Window(first=2, last=77, head=10.0, tail=9.999998239999968, slot=10.0)
    levels = Levels.of(RateCurve({1: 64.0, 2: 96.0, 4: 112.0}, 5), 4, 5)
    numbers = fill_with_restarts(levels, 6080.0, window, np.full(76, 5), 5.0, 0)
    assert numbers is not None and len(attempts) < 5
    assert window.work(numbers, levels.rates) >= 6080.0 + missed_by_moves(levels, numbers, 5.0, 0)


def test_restarts_are_paid_for_with_more_devices() -> None:
    window = Window.of(0.0, 40.0, 10.0)
    assert window is not None
    numbers = fill_with_restarts(LEVELS, 40.0, window, np.full(4, 4), 2.0, 0)
    assert numbers is not None
    assert window.work(numbers, LEVELS.rates) >= 40.0 + missed_by_moves(LEVELS, numbers, 2.0, 0)
    assert fill_with_restarts(LEVELS, 79.0, window, np.full(4, 4), 2.0, 0) is None
    held = fill_with_restarts(LEVELS, 80.0, window, np.full(4, 4), 2.0, 3)
    assert held is not None and missed_by_moves(LEVELS, held, 2.0, 3) == 0


def test_the_timetable_counts_what_is_promised() -> None:
    table = Timetable(10.0)
    table.add(5, np.array([2, 2, 1]))
    table.add(6, np.array([4]))
    assert table.used(4, 8).tolist() == [0, 2, 6, 1, 0] and table.most(7) == 1
    table.add(1000, np.array([3]))
    table.add(5, -np.array([2, 2, 1]))
    assert table.used(1000, 1001).tolist() == [3, 0] and table.most(1000) == 3
