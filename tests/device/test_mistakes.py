"""What the rig punishes: a planted mistake shows, and the careful program is right in every schedule."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.device.rig import RANDOM, SCHEDULES, Failed, Rig


@dataclass(frozen=True)
class Mistake:
    """A function of `programs.mistakes`; the schedule that shows it; what its refusal says, none for silent damage."""

    name: str
    schedule: str = "prompt"
    refused: str = ""
    forbidden: tuple[int, ...] = ()


MISTAKES = (
    Mistake("use_of_a_batch_before_its_copy", "side-late"),
    Mistake("copy_of_a_result_before_its_kernel", "main-late"),
    Mistake("copy_of_what_a_kernel_changes_before_it_has", "main-late"),
    Mistake("memory_given_back_while_a_copy_reads_it", "side-late"),
    Mistake("pinned_memory_changed_while_a_copy_reads_it", "main-late"),
    Mistake("landing_read_before_its_copy", "main-late"),
    Mistake("pinned_memory_read_after_its_end"),
    Mistake("input_of_a_sum_overwritten", "main-late"),
    Mistake("input_of_a_convolution_overwritten", "main-late"),
    Mistake("statistics_of_batch_norm_read_early", "main-late"),
    Mistake("mask_of_dropout_read_early", "main-late"),
    Mistake("memory_used_before_it_is_filled"),
    Mistake("event_on_the_wrong_stream", "side-late"),
    Mistake("kernel_in_a_thread_that_selected_no_device", refused="works on device 1 in a thread whose device is 0"),
    Mistake("device_without_index_in_a_new_thread"),
    Mistake("device_without_index_in_a_new_thread", refused="touches device 0", forbidden=(0,)),
    Mistake("current_stream_of_a_new_thread"),
    Mistake("wait_for_an_event_in_a_new_thread", refused="a wait for an event touches device 0", forbidden=(0,)),
    Mistake("tensor_on_another_device", refused="touches device 0", forbidden=(0,)),
    Mistake("tensors_of_two_devices", refused="xpected all tensors to be on the same device"),
    Mistake("host_tensor_in_a_kernel", refused="xpected all tensors to be on the same device"),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.name}-{len(mistake.forbidden)}")
def test_a_planted_mistake_shows(rig: Rig, mistake: Mistake) -> None:
    told = rig.call("mistakes.attempt", mistake.name, False, mistake.schedule, mistake.forbidden)
    assert not told["right"]
    assert mistake.refused in told["refused"] and bool(told["refused"]) == bool(mistake.refused)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.name}-{len(mistake.forbidden)}")
def test_the_careful_program_is_right_in_every_schedule(rig: Rig, mistake: Mistake) -> None:
    told = rig.call("mistakes.in_schedules", mistake.name, [*SCHEDULES, *RANDOM], mistake.forbidden)
    assert told == [{"right": True, "refused": ""}] * len(told)


def test_the_host_may_not_read_a_device_s_memory(rig: Rig) -> None:
    with pytest.raises(Failed) as died:
        rig.call("rules.read_by_the_host")
    assert died.value.code == -11


def test_work_in_a_fork_of_a_process_that_used_a_device_is_refused(rig: Rig) -> None:
    assert "forked process" in rig.call("rules.work_after_a_fork")


def test_a_process_may_be_held_to_one_device(rig: Rig) -> None:
    told = rig.call("rules.two_devices", RIG_FORBID="others")
    assert "has touched device 2 and may have no other" in told
    assert rig.call("rules.two_devices") == ""


def test_failed_work_is_told_at_the_next_wait(rig: Rig) -> None:
    assert "index out of range" in rig.call("rules.index_out_of_range", RIG_SCHEDULE="main-late")


def test_memory_has_an_end(rig: Rig) -> None:
    assert "out of memory" in rig.call("rules.too_much_memory", RIG_MEGABYTES="8")


def test_counts_tell_what_was_asked(rig: Rig) -> None:
    counts = rig.call("rules.counted")
    assert counts["one sum"] == {"kernels": 1, "queued kernels": 1}
    assert counts["pinned upload"] == {"h2d": 1, "h2d bytes": 4000}
    waited = {"sync: h2d copy": 1, "syncs": 1}
    assert counts["plain upload"] == {"h2d": 1, "h2d bytes": 4000, "pageable copies": 1, **waited}
    assert counts["item"] == {"d2h": 1, "d2h bytes": 4, "sync: item": 1, "syncs": 1}
    assert counts["wait"] == {"stream waits": 1}
    assert counts["record"] == {"record_streams": 1}
    assert counts["nonzero"] == {"kernels": 1, "sync: aten::nonzero": 1, "syncs": 1}
    assert counts["between"] == {"d2d": 1, "d2d bytes": 4000}
    assert counts["memory"] == [4096, 8192]
