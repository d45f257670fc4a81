"""Who reads with whom: the rules, without processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.sharing.joining import PreparingCosts
from preprocess.sharing.loader import ReadingPace
from preprocess.sharing.service import ReadingGroup, ReadingGroups, StreamName

LENGTH = 100
PATIENCE = 30.0
FIRST, SECOND = StreamName("train", 0, 0), StreamName("train", 0, 1)


@pytest.fixture
def groups() -> ReadingGroups:
    return empty()


def empty() -> ReadingGroups:
    return ReadingGroups(PATIENCE, lambda stream, tail: LENGTH + tail)


def members(formed: list[ReadingGroup]) -> list[set[int]]:
    return [set(group.places) for group in formed]


def read_together(groups: ReadingGroups, *loaders: int) -> None:
    for loader in loaders:
        groups.arrive(loader, expected=len(loaders))
        groups.want(loader, FIRST, 0, 0, now=0.0)
    assert members(groups.form(0.0, {})) == [set(loaders)]


def test_first_epoch_waits_for_all_that_are_expected(groups: ReadingGroups) -> None:
    for loader in (0, 1):
        groups.arrive(loader, expected=3)
        groups.want(loader, FIRST, 0, 0, now=0.0)
    assert groups.form(1.0, {}) == []
    groups.arrive(2, expected=3)
    assert groups.form(2.0, {}) == [], "it is there, but has not said what it wants"
    groups.want(2, FIRST, 0, 0, now=2.0)
    assert members(groups.form(2.0, {})) == [{0, 1, 2}]


def test_patience_ends(groups: ReadingGroups) -> None:
    groups.arrive(0, expected=2)
    groups.want(0, FIRST, 0, 0, now=5.0)
    assert groups.form(5.0 + PATIENCE - 1, {}) == []
    assert members(groups.form(5.0 + PATIENCE, {})) == [{0}]


def test_companions_wait_for_each_other_at_the_next_epoch(groups: ReadingGroups) -> None:
    read_together(groups, 0, 1, 2)
    groups.want(0, SECOND, 0, 0, now=10.0)
    groups.rest(1)  # it evaluates, for example
    assert groups.form(10.0, {1: 90, 2: 80}) == []
    groups.want(1, SECOND, 0, 0, now=11.0)
    assert groups.form(11.0, {2: 90}) == []
    groups.want(2, SECOND, 0, 0, now=12.0)
    assert members(groups.form(12.0, {})) == [{0, 1, 2}]


def test_nobody_waits_for_those_that_have_gone(groups: ReadingGroups) -> None:
    read_together(groups, 0, 1)
    groups.want(0, SECOND, 0, 0, now=10.0)
    assert groups.form(10.0, {1: 90}) == []
    groups.depart(1)
    assert members(groups.form(10.5, {})) == [{0}]


def test_who_was_waited_for_in_vain_is_not_waited_for_again(groups: ReadingGroups) -> None:
    read_together(groups, 0, 1)
    groups.want(0, SECOND, 0, 0, now=10.0)
    assert members(groups.form(10.0 + PATIENCE, {1: 10})) == [{0}]
    groups.want(0, StreamName("train", 0, 2), 0, 0, now=100.0)
    assert members(groups.form(100.0, {1: 20})) == [{0}]


@pytest.mark.parametrize(("front", "joins"), [(50, True), (51, False)])
def test_late_comer_joins_if_nobody_loses(groups: ReadingGroups, front: int, joins: bool) -> None:
    """The foremost waits front - 0 samples, and halves its pace for the other 100 - front."""
    read_together(groups, 0)
    groups.arrive(1, expected=1)
    groups.want(1, FIRST, 0, 0, now=10.0)
    (formed,) = groups.form(10.0, {0: front})
    assert set(formed.places) == ({0, 1} if joins else {1})
    assert formed.first_place == 0


@pytest.mark.parametrize(("cores", "rate", "joins"), [(40.0, 20.0, False), (1.0, 20.0, True), (40.0, 0.0, True)])
def test_late_comer_joins_by_what_samples_cost(cores: float, rate: float, joins: bool) -> None:
    """Two that read 20 samples/s leave 40 cores idle; one core makes half as many for each of two lanes."""
    groups = ReadingGroups(PATIENCE, lambda stream, tail: LENGTH + tail, lambda kind, lag: PreparingCosts(1, 1, cores))
    for loader in (0, 1):
        groups.arrive(loader, expected=1)
        groups.want(loader, FIRST, 0, 0, now=10.0 * loader, rate=rate)
        (formed,) = groups.form(10.0 * loader, {0: 50})
    assert set(formed.places) == ({0, 1} if joins else {1})


def test_own_pace_is_that_without_waiting() -> None:
    pace = ReadingPace()
    pace.ends(0, 1.0, 0.0)
    assert pace.rate == 0.0
    pace.begins(10, now=1.0, waited=5.0)
    pace.ends(50, now=11.0, waited=7.0)
    assert pace.rate == 40 / 8
    pace.ends(90, now=12.0, waited=7.0)
    assert pace.rate == 40 / 8, "it had stopped reading"


def test_group_that_is_formed_anew_begins_at_its_rearmost(groups: ReadingGroups) -> None:
    read_together(groups, 0, 1)
    (formed,) = groups.form_anew({0: 40, 1: 24})
    assert formed.first_place == 24 and set(formed.places) == {0, 1}


@given(
    st.lists(
        st.tuples(st.sampled_from("awrd"), st.integers(0, 4), st.integers(0, 3), st.integers(0, LENGTH)), max_size=60
    )
)
def test_each_loader_reads_what_it_wanted_within_its_patience(steps: list[tuple[str, int, int, int]]) -> None:
    groups, present, wanted, now = empty(), set[int](), {}, 0.0
    for action, loader, epoch, place in steps:
        now += 1.0
        if action == "a" and loader not in present:
            groups.arrive(loader, expected=3)
            present.add(loader)
        elif action == "w" and loader in present:
            groups.want(loader, StreamName("train", 0, epoch), place, 0, now)
            wanted[loader] = (epoch, place)
        elif action in "rd" and loader in present:
            groups.rest(loader) if action == "r" else groups.depart(loader)
            present -= {loader} if action == "d" else set()
            wanted.pop(loader, None)
        groups.form(now, {})
    groups.form(now + PATIENCE, {})
    found = {member: group for group in groups.groups for member in group.places}
    assert found.keys() == wanted.keys()
    assert sum(len(group.places) for group in groups.groups) == len(found)
    for loader, (epoch, place) in wanted.items():
        assert found[loader].stream.epoch == epoch and found[loader].first_place <= place
