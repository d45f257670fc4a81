"""The rig shows each wait that is missing in the project's own code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.rig import SCHEDULES, Rig
from tests.device.waits import COPIES, FEED, FEEDS, GROUPS, OTHERS, STEPS, Mutant

LOOKS = 3  # the sums of another process may be there in time by chance, where it has the cores


@pytest.mark.parametrize("mutant", STEPS, ids=lambda mutant: mutant.name)
def test_a_missing_wait_shows_in_steps(rig: Rig, mutant: Mutant) -> None:
    words = (mutant.module, mutant.old, mutant.new, SCHEDULES)
    assert rig.call("mutants.harm_to_steps", *words, RIG_FORBID="others")


@pytest.mark.parametrize("mutant", FEEDS, ids=lambda mutant: mutant.name)
def test_a_missing_wait_shows_in_feeds(rig: Rig, mutant: Mutant) -> None:
    words = (mutant.module, mutant.old, mutant.new, SCHEDULES)
    assert rig.call("mutants.harm_to_feeds", *words, RIG_FORBID="others")


@pytest.mark.parametrize("look", OTHERS)
def test_another_missing_wait_shows(rig: Rig, look: str) -> None:
    mutant = OTHERS[look]
    words = (mutant.module, mutant.old, mutant.new, look)
    assert rig.call("mutants.harm_to_others", *words)
    assert rig.call("mutants.harm_to_others", "trainers.state.tree", "import torch", "import torch", look) == ""


def test_the_code_as_it_is_shows_nothing(rig: Rig) -> None:
    same = ("import torch", "import torch", SCHEDULES)
    assert rig.call("mutants.harm_to_steps", COPIES, *same, RIG_FORBID="others") == ""
    assert rig.call("mutants.harm_to_feeds", FEED, *same, RIG_FORBID="others") == ""


@pytest.mark.parametrize("mutant", GROUPS, ids=lambda mutant: mutant.name)
def test_a_missing_wait_shows_in_groups(rig: Rig, mutant: Mutant, tmp_path: Path) -> None:
    folders = [tmp_path / str(look) for look in range(LOOKS)]
    for folder in folders:
        folder.mkdir()
    words = [mutant.module, mutant.old, mutant.new]
    assert any(any(rig.together("grouped.harm", 2, folder, words)) for folder in folders)


def test_groups_as_they_are_show_nothing(rig: Rig, tmp_path: Path) -> None:
    assert rig.together("grouped.harm", 2, tmp_path, []) == ["", ""]
