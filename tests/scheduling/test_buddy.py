"""Buddy placement by hand, and on random clusters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.elasticflow.buddy import BuddyTree, FreeBlocks, Placer
from fleet.scheduling.model.cluster import Cluster
from tests.scheduling.support.blocks import is_block

EIGHT = BuddyTree(Cluster((8, 8)))


def free(tree: BuddyTree, *held: int) -> int:
    return tree.bits(device for device in range(tree.cluster.size) if device not in held)


def test_the_smallest_block_that_fits_is_taken() -> None:
    # Free: 1 alone, 2-3, 4-7, and the second node.
    blocks = FreeBlocks(EIGHT, free(EIGHT, 0))
    assert [blocks.take(count) for count in (1, 4, 2, 8, 1)] == [1, 4, 2, 8, None]


def test_blocks_cross_nodes_only_whole() -> None:
    assert FreeBlocks(EIGHT, free(EIGHT)).take(16) == 0
    assert FreeBlocks(EIGHT, free(EIGHT, 15)).take(16) is None
    three = BuddyTree(Cluster((3, 3)))  # numbers 0-2 and 4-6
    assert three.width == 4 and three.bits([2, 3]) == 0b10100
    assert FreeBlocks(three, free(three)).take(4) is None and three.block(4, 2) == (3, 4)
    assert is_block(three, (3, 4)) and not is_block(three, (2, 3)) and not is_block(three, (0, 1, 2))


def test_jobs_migrate_where_no_block_is_left() -> None:
    # The paper's example (4.3): devices are free, but no two of them together.
    tree = BuddyTree(Cluster((4, 4)))
    staying = {"a": (0,), "b": (2,), "c": (4, 5), "d": (6,)}
    placer = Placer(tree, free(tree, 0, 2, 4, 5, 6), lambda: staying, tree.all)
    assert placer.place({"e": 2}) == {"e": (0, 1), "a": (3,)}


def test_whoever_may_not_move_stays_and_the_job_is_divided() -> None:
    tree = BuddyTree(Cluster((4,)))
    placer = Placer(tree, free(tree, 0, 2), lambda: {"a": (0,), "b": (2,)}, tree.all, lambda name: False)
    assert placer.place({"c": 2}) == {"c": (1, 3)}
    assert Placer(tree, free(tree), dict, tree.all).place({"b": 1, "a": 1, "c": 2}) == {
        "c": (0, 1), "a": (2,), "b": (3,),
    }  # fmt: skip


@st.composite
def packed(draw: st.DrawFn) -> tuple[Cluster, list[int]]:
    nodes = draw(st.sampled_from([1, 2, 3, 4]))
    cluster = Cluster((draw(st.sampled_from([1, 2, 4, 8])),) * nodes)
    counts, left = [], cluster.size
    while left and draw(st.integers(0, 9)):
        counts.append(1 << draw(st.integers(0, min(left, 16).bit_length() - 1)))
        left -= counts[-1]
    return cluster, draw(st.permutations(counts))


@given(packed())
def test_whatever_fits_by_count_gets_a_block_wherever_nodes_make_one(case: tuple[Cluster, list[int]]) -> None:
    cluster, counts = case
    tree, where = BuddyTree(cluster), dict[str, tuple[int, ...]]()
    whole = cluster.nodes & (cluster.nodes - 1) == 0
    for index, count in enumerate(counts):
        held = [device for devices in where.values() for device in devices]
        where |= Placer(tree, free(tree, *held), where.copy, tree.all).place({str(index): count})
        devices = [device for held_ in where.values() for device in held_]
        assert len(devices) == len(set(devices)) == sum(map(len, where.values()))
        assert [len(where[str(i)]) for i in range(index + 1)] == counts[: index + 1]
        if whole:
            assert all(is_block(tree, devices_) for devices_ in where.values())
