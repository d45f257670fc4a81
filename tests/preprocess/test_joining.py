"""Who shares a lane by what it costs: the rule by itself, and divided among lanes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.sharing.joining import PreparingCosts, Reader, joins, lanes

# Exact numbers: no case lies on the wrong side by its rounding.
numbers = st.integers(1, 40).map(Fraction)
readers = st.builds(
    lambda place, left, devices, rate: Reader(place, place + left, devices, rate),
    st.integers(0, 30).map(Fraction), st.integers(0, 60).map(Fraction), numbers, numbers,
)  # fmt: skip
costs = st.builds(PreparingCosts, numbers, numbers, numbers)


@given(readers, readers, costs, numbers)
def test_more_cores_never_make_joining_better(one: Reader, other: Reader, known: PreparingCosts, more: float) -> None:
    if joins(one, other, replace(known, cores=known.cores + more)):
        assert joins(one, other, known)


@given(readers, readers, costs | st.none())
def test_who_stands_at_one_place_always_shares(one: Reader, other: Reader, known: PreparingCosts | None) -> None:
    assert joins(one, replace(other, place=one.place), known)


@given(readers, readers, costs)
def test_nobody_waits_where_cores_would_be_idle(one: Reader, other: Reader, known: PreparingCosts) -> None:
    assert one.rate is not None and other.rate is not None
    enough = (one.rate + other.rate) * max(known.first, known.second)
    assert joins(one, other, replace(known, cores=enough)) == (one.place == other.place)


@given(readers, readers, costs | st.none())
def test_the_order_does_not_matter(one: Reader, other: Reader, known: PreparingCosts | None) -> None:
    assert joins(one, other, known) == joins(other, one, known)


@given(readers, readers)
def test_without_costs_the_foremost_waits_for_no_more_than_is_left(one: Reader, other: Reader) -> None:
    front, rear = max(one.place, other.place), min(one.place, other.place)
    assert joins(one, other, None) == (front == rear or front - rear <= min(one.end, other.end) - front)


@pytest.mark.parametrize(("behind", "shares"), [(66, True), (67, False)])
def test_where_cores_bind_two_alike_share_if_one_waits_for_twice_what_is_left(behind: int, shares: bool) -> None:
    first, second = Reader(66, 99, 2, 50.0), Reader(66 - behind, 99, 2, 50.0)
    assert joins(first, second, PreparingCosts(1.0, 1.0, 4.0)) == shares


def test_who_finds_all_prepared_reads_alone() -> None:
    first, second = Reader(50, 100, 1, 10.0), Reader(0, 100, 1, 10.0)
    assert joins(first, second, PreparingCosts(1.0, 1.0, 10.0))
    assert not joins(first, second, PreparingCosts(1.0, 0.1, 10.0)), "a tenth slower, and half an epoch to wait"


def test_few_devices_wait_for_many() -> None:
    first, known = Reader(60, 100, 1, 10.0), PreparingCosts(1.0, 1.0, 12.0)
    assert not joins(first, Reader(0, 100, 1, 10.0), known)
    assert joins(first, Reader(0, 100, 8, 10.0), known)


@given(st.lists(readers, min_size=1, max_size=6), costs | st.none(), st.integers(1, 6))
def test_each_has_a_lane_and_there_are_no_more_than_the_rings_have(
    some: list[Reader], known: PreparingCosts | None, most: int
) -> None:
    found = lanes(some, known, most)
    assert sorted(index for members in found for index in members) == list(range(len(some)))
    assert len(found) <= most
    home = {index: number for number, members in enumerate(found) for index in members}
    assert all(home[i] == home[j] for i, a in enumerate(some) for j, b in enumerate(some) if a.place == b.place)


def test_neighbours_join_where_lanes_run_short() -> None:
    some = [Reader(place, 100, 1, 1.0) for place in (0, 90, 40, 99)]
    idle = PreparingCosts(1.0, 1.0, 10.0)
    assert lanes(some, idle, 4) == [[3], [1], [2], [0]]
    assert lanes(some, idle, 3) == [[3, 1], [2], [0]]
    assert lanes(some, idle, 1) == [[3, 1, 2, 0]]


@pytest.mark.parametrize(("devices", "rate"), [(0, 1.0), (1, 0.0)])
def test_a_reader_without_devices_or_a_pace_is_refused(devices: float, rate: float) -> None:
    with pytest.raises(ValueError, match="None stands for one that nobody knows"):
        Reader(0, 1, devices, rate)
