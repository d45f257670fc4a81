"""A trainer and its feed on a device that is not the first, where every other is forbidden."""

from __future__ import annotations

import pytest

from tests.device.rig import RANDOM, SCHEDULES, Rig

ALL = [*SCHEDULES, *RANDOM]
STEPS, HELD_OUT_BATCHES = 5, 4  # of an epoch of the feed's 50 and 11 samples
BATCHES = 2 * (4 * STEPS + HELD_OUT_BATCHES)


@pytest.mark.parametrize("model", ["perceptron", "convolutions", "shared", "partly used"])
@pytest.mark.parametrize("workers", [1, 2])
def test_steps_have_the_cpu_s_bits(rig: Rig, model: str, workers: int) -> None:
    assert rig.call("stepping.different", model, workers, ALL, RIG_FORBID="others") == []


@pytest.mark.parametrize("schedule", ALL)
@pytest.mark.parametrize("held", [False, True])
def test_a_feed_s_batches_are_right_and_come_on_a_stream_of_their_own(rig: Rig, schedule: str, held: bool) -> None:
    told = rig.call("feeding.epochs", schedule, held, held, RIG_FORBID="others")
    assert told["wrong"] == 0
    assert told["stream waits"] >= 2 * (STEPS + HELD_OUT_BATCHES)
    assert told["record_streams"] == 2 * BATCHES


def test_a_job_that_has_ended_leaves_no_memory(rig: Rig) -> None:
    assert rig.call("stepping.memory_after", 20) == [[0, 0]] * 20


def test_gradients_are_aligned_as_ddp_s_are(rig: Rig) -> None:
    assert rig.call("stepping.gradients_are_aligned")
