"""Pauses in which room gathers in lanes."""

from __future__ import annotations

import pytest

from preprocess.making.gathering import Gathering


def pauses(gathering: Gathering, filled: int, slots: int, rounds: int) -> list[float]:
    """The pauses after so many rounds, in each of which so many slots were filled."""
    found = []
    for _ in range(rounds):
        for _ in range(filled):
            gathering.filled()
        found.append(gathering.next(slots))
    return found


def test_pauses_grow_to_twenty_milliseconds_where_a_lane_is_hardly_used_meanwhile() -> None:
    found = pauses(Gathering(), 1, 32, 12)
    assert found[0] == 0.001 and found == sorted(found) and found[-1] == 0.02


def test_pauses_end_where_a_quarter_of_a_lane_was_used_meanwhile() -> None:
    gathering = Gathering()
    pauses(gathering, 1, 32, 12)
    found = pauses(gathering, 9, 32, 6)
    assert found == sorted(found, reverse=True) and found[-1] == 0.0


def test_pauses_stay_where_between_an_eighth_and_a_quarter_was_used() -> None:
    gathering = Gathering()
    pauses(gathering, 1, 32, 3)
    assert len(set(pauses(gathering, 6, 32, 4))) == 1


@pytest.mark.parametrize("slots", [0, 2, 8])
def test_lanes_of_few_slots_have_no_pauses(slots: int) -> None:
    assert set(pauses(Gathering(), 1, slots, 9)) == {0.0}


def test_there_is_no_pause_where_nothing_was_filled() -> None:
    gathering = Gathering()
    pauses(gathering, 1, 32, 5)
    assert pauses(gathering, 0, 32, 3) == [0.0] * 3
