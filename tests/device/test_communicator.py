"""The stand-in for NCCL: right collectives in every schedule, NCCL's rules, and stock DDP with the bits of gloo."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.rig import RANDOM, SCHEDULES, Rig

ALL = [*SCHEDULES, *RANDOM]
SHORT = ["both-late", RANDOM[0]]
SOME = [*SHORT, *(pytest.param(name, marks=pytest.mark.slow) for name in ALL if name not in SHORT)]


@pytest.mark.parametrize("schedule", SOME)
def test_collectives_are_right(rig: Rig, tmp_path: Path, schedule: str) -> None:
    for told in rig.together("communicating.collectives", 3, tmp_path, schedule):
        assert told == dict.fromkeys(told, True)


def test_a_message_is_right(rig: Rig, tmp_path: Path) -> None:
    assert rig.together("communicating.pair", 2, tmp_path, "both-late") == [True, True]


def test_a_result_that_nobody_waited_for_is_not_there(rig: Rig, tmp_path: Path) -> None:
    assert rig.together("communicating.not_waited_for", 2, tmp_path) == [False, False]


def test_two_members_on_one_device_are_refused(rig: Rig, tmp_path: Path) -> None:
    for told in rig.together("communicating.on_one_device", 2, tmp_path):
        assert "device 2; each needs a device of its own" in told


def test_host_tensors_are_refused(rig: Rig, tmp_path: Path) -> None:
    assert all("takes no tensor on cpu" in told for told in rig.together("communicating.of_the_host", 2, tmp_path))


def test_who_gives_up_waits_no_longer_for_members_that_are_there(rig: Rig, tmp_path: Path) -> None:
    assert rig.together("communicating.aborted", 2, tmp_path) == ["", ""]


def test_two_that_both_send_first_wait_for_each_other_until_the_time_out(rig: Rig, tmp_path: Path) -> None:
    assert any("imed out" in told for told in rig.together("communicating.crossed", 2, tmp_path))


def test_two_orders_of_two_communicators_end_in_a_time_out(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "group").mkdir()
    assert any("imed out" in told for told in rig.together("communicating.two_orders", 2, tmp_path))
    told = rig.together("communicating.two_orders", 2, tmp_path / "group", RIG_ORDER="group")
    assert told == ["", ""]


@pytest.mark.parametrize("schedules", [SHORT, pytest.param(ALL, marks=pytest.mark.slow)], ids=["short", "all"])
def test_stock_ddp_has_the_bits_of_gloo(rig: Rig, tmp_path: Path, schedules: list[str]) -> None:
    digests = set()
    for place, schedule in [("cpu", "prompt"), *(("rig", schedule) for schedule in schedules)]:
        folder = tmp_path / f"{place}-{schedule}"
        folder.mkdir()
        digests.add(tuple(rig.together("communicating.ddp", 2, folder, place, schedule)))
    assert len(digests) == 1
