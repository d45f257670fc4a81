"""Batches go to a device from pinned memory, and nobody waits for them."""

from __future__ import annotations

import pytest

from tests.device.rig import RANDOM, SCHEDULES, Rig

BATCHES, STEPS = 4, 3


@pytest.mark.parametrize("schedule", [*SCHEDULES, *RANDOM])
def test_collated_batches_are_right_and_nobody_waits(rig: Rig, schedule: str) -> None:
    told = rig.call("sending.of_collated", schedule, RIG_FORBID="others")
    assert told == {"wrong": 0, "h2d": 2 * BATCHES, "pageable copies": 0, "syncs": 0}


def test_a_job_alone_does_not_wait_for_its_batches(rig: Rig) -> None:
    """Two workers, each with inputs and labels."""
    told = rig.call("sending.of_single_job", RIG_FORBID="others")
    assert told["h2d"] >= 4 * STEPS and (told["pageable copies"], told["syncs"]) == (0, 0)
