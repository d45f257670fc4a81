"""Slots pass from node to node: the ways they take, and what each link of a chain does when readers come and go."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.shared_epoch import Epoch, digest_alone
from benchmarks.three_hosts import run_epoch
from preprocess import SampleLayout
from preprocess.making.broadcast import NodeMap
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey

LAYOUT = SampleLayout((2, 2, 1), "uint8")
LOCAL = [str(Path(sys.executable).with_name("mpiexec")), "--oversubscribe", "--bind-to", "none", "--mca", "osc", "^ucx"]
LOCAL += ["--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp"]


def lane(*readers: int) -> LaneSpec:
    named = {node: tuple(range(count)) for node, count in enumerate(readers) if count}
    return LaneSpec(2, 1, StreamKey("data", 0, 0), LaneSchedule(10), LAYOUT, named)


def test_a_chain_goes_round_from_its_makers_node() -> None:
    nodes = NodeMap(makers=(0, 5, 6), maker_nodes=(0, 2, 2), receivers=(0, 2, 4, 7))
    spec = lane(1, 1, 1, 1)
    assert [nodes.chain(maker, spec) for maker in range(3)] == [[0, 1, 2, 3], [2, 3, 0, 1], [2, 3, 0, 1]]
    assert [nodes.next_node(1, node, spec) for node in (2, 3, 0, 1)] == [3, 0, 1, None]
    assert [nodes.sender(1, node, spec) for node in (3, 0, 1)] == [5, 7, 0]  # the maker itself, then receivers


def test_a_chain_leaves_out_nodes_without_readers_except_its_makers() -> None:
    nodes = NodeMap(makers=(0, 5), maker_nodes=(0, 2), receivers=(0, 2, 4, 7))
    spec = lane(0, 1, 0, 3)
    assert [nodes.chain(maker, spec) for maker in range(2)] == [[0, 1, 3], [2, 3, 1]]
    assert [nodes.writers(node, spec) for node in range(4)] == [[0], [0, 1], [1], [0, 1]]
    assert [nodes.remote_makers(node, spec) for node in range(4)] == [[], [0, 1], [], [0, 1]]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_chains_of_makers_on_all_nodes_load_every_link_alike(count: int) -> None:
    everywhere = tuple(range(count))
    nodes, spec = NodeMap(everywhere, everywhere, everywhere), lane(*[1] * count)
    links: dict[tuple[int, int], int] = {}
    for maker in everywhere:
        chain = nodes.chain(maker, spec)
        for link in zip(chain, chain[1:]):
            links[link] = links.get(link, 0) + 1
    assert links == {(node, (node + 1) % count): count - 1 for node in everywhere}


def test_each_preprocessor_of_each_lane_has_a_channel_of_its_own() -> None:
    nodes = NodeMap((0, 1, 2), (0, 1, 2), (0, 1, 2))
    assert len({nodes.channel(maker, number) for maker in range(3) for number in range(5)}) == 15


EAGER, BY_RENDEZVOUS = ("self,sm,tcp", "15"), ("self,tcp", "40000")  # transport, bytes of one of a slot's 4 samples


@pytest.fixture(scope="module", params=[EAGER, BY_RENDEZVOUS], ids=["small", "large"])
def passed(request: pytest.FixtureRequest, mpi_job: Callable[..., str]) -> list[str]:
    """What a job of four nodes says that it passed; it fails where one assertion of one rank fails."""
    transport, size = request.param
    out = mpi_job("chain_of_nodes", 4, size, transport=transport)
    return [line.removeprefix("passed: ") for line in out.splitlines()]


@pytest.mark.parametrize(
    "scenario",
    [
        "all_read",
        "nobody_reads_on_node_2",
        "the_middle_leaves_early",
        "the_end_leaves_early",
        "a_closed_node_passes_on",
        "the_maker_closes_first",
        "a_slow_reader_holds_the_maker",
    ],
)
def test_each_link_carries_what_it_should(passed: list[str], scenario: str) -> None:
    assert scenario in passed


@pytest.mark.parametrize(("nodes", "makers", "ranks"), [(3, 3, 6), (5, 2, 5)])
def test_a_sample_is_decoded_once_and_comes_to_each_node_once(nodes: int, makers: int, ranks: int) -> None:
    """Whatever the number of nodes: what a node receives is what was made elsewhere, and it sends no more than all."""
    epoch = Epoch(images=800, side=16, preprocessors=makers, nodes=nodes, ring_samples=128)
    outcome = run_epoch([*LOCAL, "-n", str(ranks)], epoch)
    assert outcome.nodes == nodes
    assert outcome.digests == [digest_alone(epoch)] * ranks
    assert outcome.samples_made == epoch.images and outcome.times_decoded == {1: epoch.images}
    slots = epoch.images // 16
    made_at = [
        sum(len(range(maker, slots, makers)) for maker in range(makers) if maker == node) for node in range(nodes)
    ]
    assert [traffic.slots for traffic in outcome.received] == [slots - made for made in made_at]
    assert all(traffic.slots <= slots for traffic in outcome.sent)
    assert sum(traffic.bytes for traffic in outcome.sent) == sum(traffic.bytes for traffic in outcome.received)
    assert sum(traffic.bytes for traffic in outcome.received) == (nodes - 1) * outcome.data_bytes
