"""Communicators that are kept for groups that form again: the members always use the same one, and it works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.rig import Failed, Rig

MEMBERS = 3
RAISED = "PeerFailed: the loss is nan"
KEPT, SUM = "trainers.reduce.device_reduce", "trainers.reduce.device_reduce"
DIFFERING = ["01", "12", "01", "01 leaving", "01"]
MUTANTS = {
    "the master's word alone counts": (KEPT, "any(words[1:] != [name] for words in told)", "False", DIFFERING),
    "members use what they have": (KEPT, "if mine and mine.name == name:", "if mine:", DIFFERING),
    "one that failed is kept": (SUM, "if together:", "if True:", ["01 raising", "01"]),
    "one that failed is not aborted": (SUM, "self._communicators.give_up(channel)", "pass", ["01 raising", "01"]),
}


def used(rig: Rig, folder: Path, turns: list[str], most: int = 8, mutant: list[str] | None = None) -> list[list[str]]:
    """What each member of each group said of it."""
    told = rig.together("meeting.groups", MEMBERS, folder, turns, most, mutant)
    parts = [iter(words) for words in told]
    lost: set[str] = set()
    found = []
    for members, _, word in (turn.partition(" ") for turn in turns):
        found.append([next(parts[int(member)]) for member in members if member not in lost])
        lost |= {members[-1]} if word == "lost" else set()
    return found


def assert_one_each(found: list[list[str]]) -> list[str]:
    """The members of each group used the same one; returns them."""
    assert all(len(set(names)) == 1 and "/" in str(names[0]) for names in found), found
    return [names[0] for names in found]


def test_groups_that_form_again_use_the_communicator_that_they_had(rig: Rig, tmp_path: Path) -> None:
    """Of two that are kept, the one that was not used for longest goes."""
    names = assert_one_each(used(rig, tmp_path, ["01", "02", "01", "012", "01", "02"], most=2))
    assert names[0] == names[2] == names[4] and names[1] != names[5]


def test_members_that_have_kept_different_ones_make_another(rig: Rig, tmp_path: Path) -> None:
    """Rank 1 keeps one alone, and gave up "01" for "12", then gives it up when rank 0 has already left."""
    names = assert_one_each(used(rig, tmp_path, DIFFERING, most=1))
    assert len({names[0], names[1], names[2], names[4]}) == 4 and names[2] == names[3]


def test_a_communicator_is_of_no_use_once_a_member_has_given_up(rig: Rig, tmp_path: Path) -> None:
    """In the middle of sums, before it shares what all read, or while all meet; others' are as they were."""
    turns = ["012", "01", "012 raising", "01", "012", "12 failing", "12", "012 lost", "01", "01 sharing"]
    found = used(rig, tmp_path, turns)
    assert found[2] == [RAISED, RAISED, "the loss is nan"]
    assert found[5] == ["PeerFailed: no room", "no room"]
    assert found[9] == ["no buffers", "PeerFailed: no buffers"]
    names = assert_one_each([found[turn] for turn in (0, 1, 3, 4, 6, 7, 8)])
    assert names[1] == names[2] == names[6] and names[3] == names[5] != names[0]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_missing_agreement_shows(rig: Rig, mutant: str, tmp_path: Path) -> None:
    module, old, new, turns = MUTANTS[mutant]
    assert old in Path(*module.split(".")).with_suffix(".py").read_text()
    try:
        found = used(rig, tmp_path, turns, 1, [module, old, new])
    except Failed as refused:
        print(refused)
        return
    with pytest.raises(AssertionError):
        assert_one_each([names for names, turn in zip(found, turns) if turn.endswith("1")])
