"""Algorithms 3 and 4: worked by hand, and against every order."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.placing.placement import place, score
from tests.scheduling.support.printed import best_in_a_row, can_be_whole, fewest_nodes
from tests.scheduling.support.strategies import clusters


def test_algorithm_3_by_hand() -> None:
    # Nodes of 4. b fills one; d and then a fill one together (line 17: the later of the pair first); e, c, f follow.
    counts = {"a": 3, "b": 4, "c": 2, "d": 1, "e": 5, "f": 1}
    assert place(counts, Cluster((4, 4, 4, 4))) == {
        "a": (5, 6, 7),
        "b": (0, 1, 2, 3),
        "c": (13, 14),
        "d": (4,),
        "e": (8, 9, 10, 11, 12),
        "f": (15,),
    }


def test_the_best_order_splits_the_job_that_it_costs_least() -> None:
    # 3 + 3 + 2 on two nodes of 4: to split a job of 3 costs 1/3, to split the 2 costs 1/2.
    cluster = Cluster((4, 4))
    placed = place({"x": 3, "y": 2, "z": 3}, cluster)
    assert score(placed, cluster) == pytest.approx(1 / 3 + 1 / 2 + 2 / 3)


def test_two_waiting_jobs_with_one_remainder_both_find_a_partner() -> None:
    # As printed, the second 3 would take the first one's place in the memo; both 1s would be lost to it.
    cluster = Cluster((4, 4))
    placed = place({"a": 3, "b": 3, "c": 1, "d": 1}, cluster)
    assert placed == {"c": (0,), "a": (1, 2, 3), "d": (4,), "b": (5, 6, 7)}


def test_a_gap_is_better_than_a_split() -> None:
    cluster = Cluster((4, 4))
    assert place({"a": 3, "b": 3}, cluster) == {"a": (0, 1, 2), "b": (4, 5, 6)}


def test_free_devices_only_and_the_tightest_node() -> None:
    cluster = Cluster((4, 4, 4))
    assert place({"a": 2, "b": 3}, cluster, {1, 4, 5, 8, 9, 10}) == {"a": (4, 5), "b": (8, 9, 10)}


def test_many_small_jobs_do_not_split_a_larger_one() -> None:
    # 1,024 orders leave all but the last seven jobs in their places.
    counts = {f"small-{i}": 1 for i in range(9)} | {"large": 2} | {f"more-{i}": 1 for i in range(9)}
    cluster = Cluster((4,) * 5)
    assert score(place(counts, cluster), cluster) == pytest.approx(18 + 1 / 2)


def test_too_many_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="2 jobs need 5 devices together, but 4 are free"):
        place({"a": 4, "b": 1}, Cluster((4,)))


@st.composite
def placements(draw: st.DrawFn, most: int = 8) -> tuple[dict[str, int], Cluster, set[int]]:
    """Counts that fit on the free devices of a cluster."""
    cluster = draw(clusters)
    free = set(range(cluster.size))
    if draw(st.booleans()):
        free -= draw(st.sets(st.sampled_from(sorted(free)), max_size=cluster.size))
    counts: dict[str, int] = {}
    while sum(counts.values()) < len(free) and len(counts) < most:
        count = draw(st.integers(0, len(free) - sum(counts.values())))
        if not count:
            break
        counts[f"job-{len(counts)}"] = count
    return counts, cluster, free


def free_sizes(cluster: Cluster, free: set[int]) -> list[int]:
    sizes = [len(free.intersection(cluster.devices_of(node))) for node in range(len(cluster.devices_per_node))]
    return [size for size in sizes if size]


@given(placements(most=12))
def test_every_job_gets_its_count_of_free_devices(case: tuple[dict[str, int], Cluster, set[int]]) -> None:
    counts, cluster, free = case
    placed = place(counts, cluster, free)
    given_ = [device for devices in placed.values() for device in devices]
    assert {job: len(devices) for job, devices in placed.items()} == counts
    assert list(placed) == list(counts)
    assert len(set(given_)) == len(given_) and free.issuperset(given_)
    assert all(list(devices) == sorted(devices) for devices in placed.values())
    assert place(counts, cluster, sorted(free, reverse=True)) == placed


@settings(max_examples=300)
@given(placements(most=6))
def test_no_worse_than_any_order_in_a_row(case: tuple[dict[str, int], Cluster, set[int]]) -> None:
    counts, cluster, free = case
    sizes = free_sizes(cluster, free)
    assume(len(set(sizes)) == 1)
    assert score(place(counts, cluster, free), cluster) <= best_in_a_row(counts, sizes) + 1e-9


@settings(max_examples=300)
@given(st.sampled_from([2, 3, 4, 6, 8]), st.integers(1, 4), st.data())
def test_jobs_that_can_all_be_whole_are(per_node: int, nodes: int, data: st.DataObject) -> None:
    cluster = Cluster((per_node,) * nodes)
    counts: dict[str, int] = {}
    left = [per_node] * nodes
    while any(left) and len(counts) < 8:
        count = data.draw(st.integers(1, max(left)))
        node = data.draw(st.sampled_from([i for i, size in enumerate(left) if size >= count]))
        left[node] -= count
        counts[f"job-{len(counts)}"] = count
    assert can_be_whole(sorted(counts.values(), reverse=True), [per_node] * nodes)
    order = data.draw(st.permutations(sorted(counts)))
    placed = place({job: counts[job] for job in order}, cluster)
    assert score(placed, cluster) == pytest.approx(fewest_nodes(counts, [per_node] * nodes))
