"""Sums from device to device, where streams run late and each member may touch its own device alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.rig import RANDOM, SCHEDULES, Failed, Rig
from tests.device.waits import SUMS, Mutant

KILLED = ("rig:", "the first message was not its own", "NoneType")
"""What a member says whose device, first message or communicator is not there."""
LATE = (5, 10, 20)
"""Seconds: by more than one member comes after another as a rule; where there is much else to do it may be later."""


@pytest.mark.parametrize("schedule", [*SCHEDULES, RANDOM[0]])
def test_sums_are_those_of_the_ring(rig: Rig, schedule: str, tmp_path: Path) -> None:
    """One of the members has no room on its device."""
    assert rig.together("adding.right", 3, tmp_path, schedule, 5, [1]) == [True] * 3


@pytest.mark.parametrize(("members", "workers"), [(2, 2), (2, 7), (4, 4)])
def test_all_members_may_keep_theirs_on_the_device(rig: Rig, members: int, workers: int, tmp_path: Path) -> None:
    assert rig.together("adding.right", members, tmp_path, "both-late", workers, []) == [True] * members


@pytest.mark.parametrize("mutant", SUMS, ids=lambda mutant: mutant.name)
def test_a_missing_wait_shows(rig: Rig, mutant: Mutant, tmp_path: Path) -> None:
    words = [mutant.module, mutant.old, mutant.new]

    def shows(streams: str, late: int) -> bool:
        folder, schedule = tmp_path / f"{streams}-{late}", f"{streams}-late:{late}"
        folder.mkdir()
        try:
            return not all(rig.together("adding.right", 2, folder, schedule, 3, [0], words))
        except Failed as refused:
            print(refused)
            return any(killed in str(refused) for killed in KILLED)

    assert any(shows(streams, late) for late in LATE for streams in ("main", "side"))
