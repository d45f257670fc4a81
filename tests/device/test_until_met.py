"""The first steps of a group go over hosts while its devices meet, and the others from device to device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.rig import Rig
from tests.device.waits import WHILE_MEETING, Mutant

BEFORE, AFTER = 4, 3
OVER_HOSTS, BETWEEN_DEVICES = [True, True, False], [False, False, True]


@pytest.mark.parametrize(("members", "schedule"), [(2, "both-late"), (3, "random:1")])
def test_a_group_changes_its_way_once_and_no_bit(rig: Rig, members: int, schedule: str, tmp_path: Path) -> None:
    """The step after which the master has met is the last over hosts; later ones go between devices."""
    for told in rig.together("beginning.by_both_ways", members, tmp_path, schedule, BEFORE, AFTER):
        steps, is_right = told[:-1], told[-1]
        assert steps[:BEFORE] == [OVER_HOSTS] * BEFORE
        assert steps[BEFORE:] == [BETWEEN_DEVICES] * AFTER and is_right


def test_who_leaves_before_waits_so_that_the_communicator_can_be_kept(rig: Rig, tmp_path: Path) -> None:
    assert rig.together("beginning.left_before", 2, tmp_path) == [[True, True, False, False]] * 2


def test_a_member_that_sends_nothing_holds_up_no_other_device(rig: Rig, tmp_path: Path) -> None:
    assert rig.together("beginning.while_one_is_silent", 3, tmp_path, 60) == [True] * 3


@pytest.mark.parametrize("mutant", WHILE_MEETING, ids=lambda mutant: mutant.name)
def test_a_device_that_waits_for_a_silent_one_shows(rig: Rig, mutant: Mutant, tmp_path: Path) -> None:
    words = [mutant.module, mutant.old, mutant.new]
    assert rig.together("beginning.while_one_is_silent", 2, tmp_path, 3, words) != [True] * 2


def test_devices_that_never_meet_are_named_after_the_time_out(rig: Rig, tmp_path: Path) -> None:
    of_first, of_last = rig.together("beginning.without", 2, tmp_path, "never")
    assert of_first.startswith("PeerSilent: waited 2 s for rank 1"), of_first
    assert of_last.startswith(("PeerSilent: waited 2 s for rank 0", "PeerFailed: rank 0")), of_last


def test_a_device_that_cannot_meet_ends_the_training_of_all(rig: Rig, tmp_path: Path) -> None:
    """It says so after its next step, and does not wait for the time-out."""
    of_first, of_last = rig.together("beginning.without", 2, tmp_path, "broken")
    assert of_last == "ArithmeticError: no room for rings"
    assert of_first.startswith("PeerFailed"), of_first
