"""How many preprocessors a demand takes, and what it is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.data_path import DataPath, demand_of

speeds = st.dictionaries(st.integers(1, 40), st.floats(0.1, 1e6), min_size=1, max_size=6).map(DataPath)


@given(speeds, st.floats(0, 2e6))
def test_the_fewest_that_make_enough(path: DataPath, demand: float) -> None:
    needed = path.needed(demand)
    assert 1 <= needed <= path.most
    assert all(path.made_by(count) < demand for count in range(1, needed))
    assert path.made_by(needed) >= demand or needed == path.most


@given(speeds)
def test_what_was_measured_is_taken_as_it_is(path: DataPath) -> None:
    assert all(path.made_by(count) == rate for count, rate in path.together.items())


def test_between_measured_numbers_it_is_linear() -> None:
    path = DataPath({1: 100.0, 2: 190.0, 4: 350.0, 8: 500.0})
    assert [path.made_by(count) for count in (3, 5, 6)] == [270.0, 387.5, 425.0]
    assert DataPath({4: 100.0}).made_by(1) == 25.0
    assert [path.needed(demand) for demand in (0, 100, 101, 200, 300, 400, 10_000)] == [1, 1, 2, 3, 4, 6, 8]


@given(speeds, st.integers(1, 60))
def test_a_part_of_the_preprocessors_is_as_fast_as_it_was(path: DataPath, count: int) -> None:
    part = path.limited_to(count, ["a", "b"])
    assert part.most == count and part.feeds("a") == part.feeds("b") == path.made_by(count)
    assert all(part.made_by(known) == rate for known, rate in path.together.items() if known < count)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e6)), max_size=8))
def test_a_stream_is_eaten_at_the_pace_of_its_fastest(eaten: list[tuple[str, float]]) -> None:
    demand = demand_of(eaten)
    assert demand <= math.fsum(pace for _, pace in eaten) * (1 + 1e-9)
    assert demand >= max((pace for _, pace in eaten), default=0.0)
    assert demand_of((stream, 0.5 * pace) for stream, pace in eaten) == pytest.approx(0.5 * demand)


def test_nobody_eats_nothing() -> None:
    assert demand_of([]) == 0.0
    assert demand_of([("a", 3.0), ("b", 4.0), ("a", 5.0)]) == 9.0


def test_data_that_nobody_measured_is_not_limited() -> None:
    path = DataPath({1: 10.0}, {"slow": 3.0})
    assert (path.feeds("slow"), path.feeds("other")) == (3.0, math.inf)


@pytest.mark.parametrize("together", [{}, {0: 5.0}])
def test_a_path_was_measured(together: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="their numbers begin at 1"):
        DataPath(together)
