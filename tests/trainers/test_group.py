"""Groups over real MPI: collectives, failing and silent members."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from trainers import Group, blocks_of

ORDER = [2, 0, 3, 1]


@pytest.fixture(scope="module")
def seen(mpi: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("groups")
    mpi(4, "groups.py", str(folder))
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(4)]


@pytest.mark.parametrize("how", ["collectives", "in pieces"])
def test_collectives(how: str, seen: list[dict[str, Any]]) -> None:
    for index, rank in enumerate(ORDER):
        got = seen[rank][how]
        assert got["index"] == index
        assert got["bcast"] == [0, 1, 2, 3, 4]
        assert got["bytes"] == "x" * 3001
        assert got["agree"] == -7
        assert got["gathered"] == (["", "1", "22", "333"] if index == 0 else [])
        assert got["trees"] == ([0, 1, 2, 3] if index == 0 else [])
        assert got["tree"]


def test_the_ring_sends_little_more_than_a_plain_ring(seen: list[dict[str, Any]]) -> None:
    members, virtual_workers, size = 4, 6, 6000 * 4
    assert all(rank["traffic"]["right"] for rank in seen)
    total = sum(rank["traffic"]["sent"] for rank in seen)
    assert total == size * (2 * (members - 1) + (virtual_workers - members) / virtual_workers)


def test_a_raising_member_ends_the_waits_of_the_others(seen: list[dict[str, Any]]) -> None:
    assert seen[ORDER[1]]["failing"] == "raised: the loss is nan"
    for rank in (ORDER[0], ORDER[2]):
        assert seen[rank]["failing"] == f"PeerFailed {ORDER[1]}: ArithmeticError: the loss is nan"


def test_a_member_that_waits_for_samples_can_look_for_failures(seen: list[dict[str, Any]]) -> None:
    assert seen[1]["checking"] == "aborted"
    assert seen[3]["checking"] == "PeerFailed 1: out of memory"


def test_who_is_no_member_is_not_heard(seen: list[dict[str, Any]]) -> None:
    assert seen[1]["leftover"] == "aborted"
    assert seen[3]["leftover"] == "PeerFailed 1: out of memory"


def test_nothing_lands_in_the_memory_of_a_member_that_gave_up(seen: list[dict[str, Any]]) -> None:
    assert seen[3]["landing"] == [0, 0]


def test_a_silent_rank_is_named(seen: list[dict[str, Any]]) -> None:
    assert seen[0]["silent"] == "PeerSilent [1]"
    assert seen[2]["silent"] == "PeerSilent [0]"
    assert seen[3]["silent"] == "PeerSilent [2]"  # its parent in the tree


def test_groups_form_after_failures(seen: list[dict[str, Any]]) -> None:
    assert [rank["afterwards"] for rank in seen] == [3, 3, 3, 3]


def test_a_group_of_one_needs_no_mpi() -> None:
    with Group.alone() as group:
        assert (group.index, group.size, group.is_master, group.waited) == (0, 1, True, 0.0)
        assert group.block(3) == range(3)
        assert group.agree(5) == 5
        assert group.bcast_bytes(b"abc") == b"abc"
        assert group.gather_bytes(b"abc") == [b"abc"]
        tree = {"t": torch.ones(2)}
        assert group.bcast_tree(tree) is tree


def test_blocks_are_balanced_and_the_larger_come_first() -> None:
    assert blocks_of(8, 3) == [range(3), range(3, 6), range(6, 8)]
    assert blocks_of(8, 3, (1, 5, 2)) == [range(1), range(1, 6), range(6, 8)]
    for shares in ((4, 4), (8, 0, 0), (1, 1, 1)):
        with pytest.raises(ValueError, match="for 3 trainers: give each trainer one or more, 8 together"):
            blocks_of(8, 3, shares)
    with pytest.raises(ValueError, match="3 trainers for 2 virtual workers: give a job between 1 and 2 trainers"):
        blocks_of(2, 3)
