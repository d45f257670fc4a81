"""Sums from device to device, where streams run late and each member may touch its own device alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.rig import RANDOM, SCHEDULES, Failed, Rig

CHANNEL, SUM = "trainers.messages.device_channel", "trainers.reduce.device_sum"
WAITS = {
    "messages before the gradients are there": (
        SUM,
        "self._side.wait_stream(self._module.current_stream(self._device))",
    ),
    "additions before the messages are there": (CHANNEL, "work.wait(*limit)"),
    "the master's tensors are used before they are there": (SUM, "self._waited += self._channel.settle()  # they come"),
    "what an other member brings is used before it is there": (
        SUM,
        "self._waited += self._channel.settle()  # all have come",
    ),
    "an update is asked for and does not wait for its sums": (
        SUM,
        "self._module.current_stream(self._device).wait_stream(self._side)",
    ),
    "a thread has no device": (SUM, "select(self._device)"),
    "messages stand in the device's own stream": (
        SUM,
        "nullcontext() if self._module is None else self._module.stream(self._side)",
        "nullcontext()",
    ),
    "the thread that meets has no device": (CHANNEL, "select(self._device)"),
    "sums are used before they are there": (SUM, "self._waited += self._channel.settle()  # they are summed"),
}
LATE = (5, 10, 20)
"""Seconds: by more than one member comes after another as a rule; where there is much else to do it may be later."""


@pytest.mark.parametrize("schedule", [*SCHEDULES, RANDOM[0]])
def test_sums_are_those_of_the_ring(rig: Rig, schedule: str, tmp_path: Path) -> None:
    """One of the members has no room on its device."""
    assert rig.together("adding.right", 3, tmp_path, schedule, 5, [1]) == [True] * 3


@pytest.mark.parametrize(("members", "workers"), [(2, 2), (2, 7), (4, 4)])
def test_all_members_may_keep_theirs_on_the_device(rig: Rig, members: int, workers: int, tmp_path: Path) -> None:
    assert rig.together("adding.right", members, tmp_path, "both-late", workers, []) == [True] * members


@pytest.mark.parametrize("mutant", WAITS)
def test_a_missing_wait_shows(rig: Rig, mutant: str, tmp_path: Path) -> None:
    module, line, new = (*WAITS[mutant], "pass")[:3]
    assert line in Path(*module.split(".")).with_suffix(".py").read_text()

    def shows(streams: str, late: int) -> bool:
        folder, schedule = tmp_path / f"{streams}-{late}", f"{streams}-late:{late}"
        folder.mkdir()
        try:
            return not all(rig.together("adding.right", 2, folder, schedule, 3, [0], [module, line, new]))
        except Failed as refused:
            print(refused)
            return "rig:" in str(refused)

    assert any(shows(streams, late) for late in LATE for streams in ("main", "side"))
