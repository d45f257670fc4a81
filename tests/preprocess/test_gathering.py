"""Pauses in which room gathers in lanes."""

from __future__ import annotations

import pytest

from preprocess.making.preprocessor import Gathering


def pauses(gathering: Gathering, filled: int, slots: int, rounds: int) -> list[float]:
    """The pauses after so many rounds, in each of which so many slots of a lane were filled, one by one."""
    found = []
    for _ in range(rounds):
        for _ in range(filled):
            gathering.filled(3)
        found.append(gathering.next({3: slots, 5: 40}))
    return found


def test_pauses_grow_to_fifty_milliseconds_where_a_lane_is_hardly_used_meanwhile() -> None:
    found = pauses(Gathering(), 7, 32, 12)
    assert found[0] == 0.001 and found == sorted(found) and found[-1] == 0.05


def test_pauses_end_where_half_of_a_lane_was_used_meanwhile() -> None:
    gathering = Gathering()
    pauses(gathering, 1, 32, 12)
    found = pauses(gathering, 17, 32, 7)
    assert found == sorted(found, reverse=True) and found[-1] == 0.0


def test_pauses_stay_where_between_a_quarter_and_half_was_used() -> None:
    gathering = Gathering()
    pauses(gathering, 1, 32, 3)
    assert len(set(pauses(gathering, 12, 32, 4))) == 1


def test_each_lane_is_looked_at_by_itself() -> None:
    """Ten slots are more than half of a lane of sixteen, and a quarter of all."""
    gathering = Gathering()
    before = pauses(gathering, 1, 32, 3)[-1]
    gathering.filled(7, 10)
    assert gathering.next({3: 24, 7: 16}) < before


@pytest.mark.parametrize("slots", [0, 2, 8])
def test_lanes_of_few_slots_have_no_pauses(slots: int) -> None:
    assert set(pauses(Gathering(), 1, slots, 9)) == {0.0}


def test_there_is_no_pause_where_nothing_was_filled() -> None:
    gathering = Gathering()
    pauses(gathering, 1, 32, 5)
    assert pauses(gathering, 0, 32, 3) == [0.0] * 3
