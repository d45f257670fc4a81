"""A trainer and its feed on a device that is not the first, where every other is forbidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.rig import RANDOM, SCHEDULES, Rig

ALL = [*SCHEDULES, *RANDOM]
FEW = ["prompt", "both-late", RANDOM[0]]
REST = [schedule for schedule in ALL if schedule not in FEW]
STEPS, HELD_OUT_BATCHES = 5, 4  # of an epoch of the feed's 50 and 11 samples
BATCHES = 2 * (4 * STEPS + HELD_OUT_BATCHES)


@pytest.mark.parametrize("model", ["perceptron", "convolutions", "shared", "partly used"])
@pytest.mark.parametrize(("workers", "spills"), [(1, False), (2, False), (5, False), (2, True)])
@pytest.mark.parametrize("schedules", [FEW, pytest.param(REST, marks=pytest.mark.slow)], ids=["few", "rest"])
def test_steps_have_the_cpu_s_bits(rig: Rig, model: str, workers: int, spills: bool, schedules: list[str]) -> None:
    assert rig.call("stepping.different", model, workers, schedules, spills, RIG_FORBID="others") == []


@pytest.mark.parametrize("workers", [1, 3])
def test_a_step_does_not_wait_for_the_device_and_moves_no_gradient(rig: Rig, workers: int) -> None:
    """One worker's step asks for no kernel more than a plain loop's, but for the two that count its targets."""
    asked, loop = rig.call("counting.of_trainer", "perceptron", workers), rig.call("counting.of_a_loop", "perceptron")
    assert asked["pinned bytes"] < asked["bytes of a gradient"], "the first step's gradients waited there"
    assert "syncs" not in asked and asked["d2h bytes"] == 8 * workers and "h2d bytes" not in asked
    assert workers > 1 or asked["kernels"] == loop["kernels"] + 2


@pytest.mark.parametrize("told", ["step", "snapshot"])
def test_a_loss_that_is_not_finite_is_told_after_the_next_step_or_before_a_snapshot(rig: Rig, told: str) -> None:
    *before, last = rig.call("stepping.diverging", told)
    assert before == ["", ""] and "the loss of virtual worker 1 is nan at step 1 of epoch 0" in last


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("schedule", ["prompt", "both-late"])
def test_a_job_goes_on_from_its_snapshot_after_a_loss_that_is_not_finite(rig: Rig, workers: int, schedule: str) -> None:
    """The device has done one more update when it is told of; a snapshot is of the steps before, to the bit."""
    on_cpu = rig.call("stepping.gone_on_after", workers, "cpu")
    on_device = rig.call("stepping.gone_on_after", workers, "rig:0", schedule)
    assert on_cpu.pop("told") == 1 and on_device.pop("told") == 2
    assert on_cpu == on_device and on_cpu["finite"]


def test_a_bucket_s_gradients_have_one_hook_once_their_order_is_known(rig: Rig) -> None:
    """An only worker's gradients are the sums: no hook takes them."""
    for workers in (1, 2):
        (before, parameters, _), (after, _, buckets) = rig.call("counting.hooks", "ResNet-50", workers)
        assert before == parameters > 10 * buckets and buckets > 1
        assert after == (buckets if workers > 1 else 0)


def test_gradients_that_leave_a_device_are_scaled_by_type_and_not_one_by_one(rig: Rig) -> None:
    few, many, of_all = (rig.call("counting.of_copies", *counts) for counts in ((2, 1), (60, 1), (60, 3)))
    assert few["wrong"] == many["wrong"] == of_all["wrong"] == 0
    assert few["kernels"] == many["kernels"] == 2 and of_all["kernels"] == 3 * 2
    assert few["d2h"] == many["d2h"] == 1 and of_all["d2h"] == 3


@pytest.mark.parametrize("schedule", ALL)
def test_gradients_leave_a_device_that_has_no_room_for_them(rig: Rig, schedule: str) -> None:
    """Its MiB takes the model and its momenta, but not twelve workers' gradients of 67 KiB beside them."""
    asked = rig.call("counting.of_trainer", "perceptron", 12, schedule, RIG_MEGABYTES="1")
    assert asked["d2h bytes"] >= 12 * asked["bytes of a gradient"]


def test_a_member_has_room_in_its_share_alone(rig: Rig) -> None:
    assert [rig.call("rules.room_of_a_member", members) for members in (1, 2)] == pytest.approx([0.9, 0.9 * 0.45])


@pytest.mark.parametrize("schedule", ALL)
@pytest.mark.parametrize("held", [False, True])
def test_a_feed_s_batches_are_right_and_come_on_a_stream_of_their_own(rig: Rig, schedule: str, held: bool) -> None:
    told = rig.call("feeding.epochs", schedule, held, held, RIG_FORBID="others")
    assert told["wrong"] == 0
    assert told["stream waits"] >= 2 * (STEPS + HELD_OUT_BATCHES)
    assert told["record_streams"] == 2 * BATCHES


@pytest.mark.parametrize("schedule", ALL)
def test_samples_in_place_of_corrupt_ones_are_the_job_s_own(rig: Rig, schedule: str) -> None:
    """The thread that trains makes them, while the one that reads ahead waits."""
    assert rig.call("feeding.own_substitutes", schedule, RIG_FORBID="others") == [True] * 4


def test_a_job_that_has_ended_leaves_no_memory(rig: Rig) -> None:
    assert rig.call("stepping.memory_after", 20) == [[0, 0]] * 20


def test_gradients_are_aligned_as_ddp_s_are(rig: Rig) -> None:
    assert rig.call("stepping.gradients_are_aligned")


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_in_a_group_the_host_sleeps_once_a_step_when_all_is_asked_for(rig: Rig, tmp_path: Path, workers: int) -> None:
    """The buffers of the next step come with the sums, and the update waits for these on the device.

    Only the losses of several workers are put together later.
    """
    for asked in rig.together("counting.of_members", 2, tmp_path, "ResNet-50", workers):
        assert (asked["sleeps"], asked["kernels after the last sleep"]) == (1, workers // 2 - 1)
        assert "syncs" not in asked


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adadelta", "Adagrad"])
def test_an_update_that_stands_behind_its_sums_reads_nothing(rig: Rig, name: str) -> None:
    assert rig.call("updating.of_optimizer", name) == [True, 0]


@pytest.mark.parametrize("name", ["Rprop", "ASGD"])
def test_optimizers_that_read_their_gradients_wait_for_them(rig: Rig, name: str) -> None:
    unread, waits = rig.call("updating.of_optimizer", name)
    assert not unread and waits > 0


def test_what_else_is_called_in_an_update_may_read(rig: Rig) -> None:
    told = rig.call("updating.of_others")
    assert told == dict.fromkeys(told, False)
