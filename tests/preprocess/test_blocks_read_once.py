"""Preprocessors that share a ring read each chunk once in an epoch, and make the samples that any others would make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from preprocess import Bag, Dataset, DatasetSpec, OrderSpec, Part, SharedLoader, SourceSpec
from preprocess.making.costs import open_stores, sample_costs, throughput
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import RingShape, lane_bytes
from preprocess.ring.ring import LaneReader, Ring
from preprocess.samples.order import BlockOrder
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from preprocess.store.sample_store import SampleStore, StoreBudget

SAMPLES, CHUNK, WINDOW, WRITERS, SLOT, LANES, WIDTH = 720, 20, 6, 3, 16, 3, 64
CHUNKS = SAMPLES // CHUNK
BLOCKS = OrderSpec("blocks", WINDOW)
CACHE = 1.3 * CHUNK * (4 * WIDTH + 8) * WINDOW / WRITERS / 2**20  # MiB of a window's chunks in one preprocessor


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SourceSpec]:
    """The same numbers in row groups, and in chunks of two variables."""
    folder = tmp_path_factory.mktemp("chunks")
    values = np.repeat(np.arange(SAMPLES, dtype=np.float32), WIDTH).reshape(SAMPLES, WIDTH)
    table = pa.table({"x": list(values), "y": list(range(SAMPLES))})
    pq.write_table(table, folder / "t.parquet", row_group_size=CHUNK)
    group = zarr.open_group(str(folder / "s.zarr"), mode="w")
    group.create_array("x", shape=values.shape, chunks=(CHUNK, WIDTH), dtype="f4")[:] = values
    group.create_array("y", shape=(SAMPLES,), chunks=(CHUNK,), dtype="i8")[:] = np.arange(SAMPLES)
    columns = {"inputs": "x", "targets": "y"}
    return {
        "parquet": SourceSpec("parquet", {"path": str(folder / "t.parquet"), **columns}),
        "zarr": SourceSpec("zarr", {"path": str(folder / "s.zarr"), **columns, "lead": 0}),
    }


def opened(source: SourceSpec, cache: float, order: OrderSpec | None, held_out: bool = False) -> Dataset:
    given = SourceSpec(source.source, {**source.arguments, "cache": cache}, source.subset)
    return Dataset(DatasetSpec("chunks", given, held_out=given if held_out else None, order=order, store=True))


class Team:
    """The preprocessors of a ring, each with a data set of its own, and perhaps a store."""

    def __init__(
        self,
        source: SourceSpec,
        order: OrderSpec | None,
        cache: float = 64,
        store: int = 0,
        divided: bool = True,
        held_out: bool = False,
    ) -> None:
        self.datasets = [opened(source, cache, order, held_out) for _ in range(WRITERS)]
        self.divided, self.generation = divided, 0
        first = self.datasets[0]
        shape = RingShape(LANES, lane_bytes(first.layout, 96, SLOT, WRITERS), SLOT, LANES, WRITERS)
        self.ring = Ring.forked(shape)
        self.members, self.stores = [], list[dict[str, SampleStore]]()
        for number, dataset in enumerate(self.datasets):
            names = {"chunks": dataset}
            self.stores.append(open_stores(names, StoreBudget(store), shape, number, pytest.fail) if store else {})
            self.members.append(Preprocessor(self.ring, number, names, stores=self.stores[-1]))
        self.before = self.chunks_read

    @property
    def chunks_read(self) -> int:
        return sum(dataset.train_source.chunks_read for dataset in self.datasets)  # type: ignore[attr-defined]

    def open(self, lane: int, seed: int, epoch: int = 0, makers: tuple[int, ...] = ()) -> LaneReader:
        self.generation += 1
        dataset = self.datasets[0]
        key, schedule = (
            StreamKey("chunks", seed, epoch),
            LaneSchedule(SAMPLES, held_out=dataset.held_out, first_epoch=epoch),
        )
        spec = LaneSpec(
            lane, self.generation, key, schedule, dataset.layout, {0: (lane,)}, None, makers, self.divided,
            dataset.orders.blocks,
        )  # fmt: skip
        opening = self.ring.lanes[lane]
        opening.open(spec.layout, (lane,), spec.generation, makers=makers, divided=self.divided, timeout=5)
        for member in self.members:
            if spec.is_made_by(member.index):
                member.open_lane(spec)
        return opening.reader(lane, spec.layout, spec.generation)

    def read(self, reader: LaneReader, count: int) -> list[int]:
        """The targets of the next samples; each input belongs to its target."""
        found: list[int] = []
        for begin in range(reader.released, reader.released + count, SLOT):
            end = begin + SLOT
            if reader.available < end:
                while sum(member.step() for member in self.members):
                    pass
                assert reader.wait(end, timeout=5)
            inputs, targets = reader.take(np.arange(begin, end))
            assert np.array_equal(inputs.reshape(SLOT, WIDTH)[:, 0], targets.reshape(SLOT))
            found += targets.reshape(SLOT).tolist()
            reader.release(end)
        return found


def expected(dataset: Dataset, seed: int, epochs: Sequence[int]) -> list[int]:
    return [sample for epoch in epochs for sample in dataset.orders.of(seed, epoch).tolist()]


@pytest.mark.parametrize(("kind", "variables"), [("parquet", 1), ("zarr", 2)])
def test_each_chunk_is_read_once_in_an_epoch(sources: dict[str, SourceSpec], kind: str, variables: int) -> None:
    team = Team(sources[kind], BLOCKS, cache=CACHE)
    reader = team.open(0, seed=5)
    for epoch in range(3):
        before = team.chunks_read
        assert team.read(reader, SAMPLES) == expected(team.datasets[0], 5, [epoch])
        # Preprocessors work ahead by what the ring holds, so into the next epoch's first window.
        ahead = WINDOW * variables
        assert abs(team.chunks_read - before - CHUNKS * variables) <= ahead
    assert CHUNKS * variables * 3 <= team.chunks_read - team.before <= CHUNKS * variables * 3 + ahead


@pytest.mark.parametrize("block", [None, 2 * CHUNK])
def test_held_out_chunks_are_read_once_in_an_evaluation_too(sources: dict[str, SourceSpec], block: int | None) -> None:
    order = OrderSpec("blocks", WINDOW, block)
    team = Team(sources["parquet"], order, cache=2 * CACHE, held_out=True)
    evaluated: list[Any] = [dataset.preparation("held_out").source for dataset in team.datasets]
    reader, read = team.open(0, seed=5), []
    for epoch in range(3):
        assert team.read(reader, 2 * SAMPLES) == [*expected(team.datasets[0], 5, [epoch]), *range(SAMPLES)]
        read.append([source.chunks_read for source in evaluated])
    for before, after in zip(read, read[1:]):
        each = np.subtract(after, before)
        assert each.sum() == CHUNKS and each.max() - each.min() <= 2, "each preprocessor reads as many"


def test_samples_that_are_shuffled_with_all_others_read_them_again_and_again(sources: dict[str, SourceSpec]) -> None:
    team = Team(sources["zarr"], None, cache=CACHE, divided=False)
    assert team.read(team.open(0, seed=5), SAMPLES) == expected(team.datasets[0], 5, [0])
    assert team.chunks_read - team.before > 8 * CHUNKS


def test_streams_of_several_seeds_and_epochs_beside_each_other(sources: dict[str, SourceSpec]) -> None:
    """Each has its own windows, and reads the chunks once; the cache has room for theirs and one more."""
    team = Team(sources["zarr"], BLOCKS, cache=4 * CACHE)
    readers = [team.open(0, 1), team.open(1, 2), team.open(2, 1, epoch=4)]
    found: list[list[int]] = [[], [], []]
    for _ in range(SAMPLES // (5 * SLOT)):
        for mine, reader in zip(found, readers):
            mine += team.read(reader, 5 * SLOT)
    wanted = [
        expected(team.datasets[0], 1, [0]),
        expected(team.datasets[0], 2, [0]),
        expected(team.datasets[0], 1, [4]),
    ]
    assert found == wanted
    assert team.chunks_read - team.before <= 3 * (2 * CHUNKS + 2 * WINDOW)


def test_a_lane_whose_makers_are_fewer_has_the_same_samples(sources: dict[str, SourceSpec]) -> None:
    team = Team(sources["parquet"], BLOCKS)
    assert team.read(team.open(0, 8, makers=(0, 2)), SAMPLES) == expected(team.datasets[0], 8, [0])
    assert team.chunks_read - team.before <= CHUNKS + WINDOW


def test_samples_that_are_kept_have_the_owners_of_their_blocks(sources: dict[str, SourceSpec]) -> None:
    team = Team(sources["zarr"], BLOCKS, cache=CACHE, store=4 << 20)
    first = team.datasets[0]
    assert team.read(team.open(0, 1), 2 * SAMPLES) == expected(first, 1, [0, 1])
    assert team.read(team.open(1, 2), SAMPLES) == expected(first, 2, [0])
    assert sum(store["chunks"].statistics.prepared for store in team.stores) == SAMPLES
    assert team.chunks_read - team.before == 2 * CHUNKS
    assert team.read(team.open(2, 3, makers=(0, 2)), SAMPLES) == expected(first, 3, [0])


def test_makers_that_take_turns_give_the_same_order(sources: dict[str, SourceSpec]) -> None:
    alone = Team(sources["parquet"], BLOCKS, divided=False)
    assert alone.read(alone.open(0, 3), SAMPLES) == expected(alone.datasets[0], 3, [0])


def test_windows_that_reach_into_the_next_chunk_read_it_once_more(sources: dict[str, SourceSpec]) -> None:
    """Blocks of several chunks do that less often."""
    arguments: dict[str, Any] = {**sources["zarr"].arguments, "targets": "x", "lead": 1}
    reads = []
    for chunks in (1, 6):
        cache = (chunks + 1) * CHUNK * WIDTH * 4 / 2**20
        dataset = opened(SourceSpec("zarr", arguments), cache, OrderSpec("blocks", 1, chunks * CHUNK))
        source: Any = dataset.train_source
        before = source.chunks_read
        for sample in dataset.orders.of(2, 0).tolist():
            source.read(sample)
        reads.append((source.chunks_read - before) / CHUNKS)
    assert 1.7 <= reads[0] <= 2 and 1.05 <= reads[1] <= 7 / 6


def test_scripts_that_share_a_loader_have_the_order(sources: dict[str, SourceSpec], loader_folder: Path) -> None:
    data = DatasetSpec("chunks", sources["parquet"])
    asked = {"shuffle": "blocks", "window": WINDOW}
    with SharedLoader(data, 10, seed=4, workers=2, linger=0.0, order=asked) as loader:
        found = [[target for _, targets in loader for target in targets.tolist()] for _ in range(2)]
    order = BlockOrder(SAMPLES, tuple(range(0, SAMPLES, CHUNK)), WINDOW)
    assert found == [order.of(4, epoch).tolist() for epoch in range(2)]


def test_a_script_s_part_of_such_a_stream_comes_in_the_order(
    sources: dict[str, SourceSpec], loader_folder: Path
) -> None:
    data, asked = DatasetSpec("chunks", sources["parquet"]), {"shuffle": "blocks", "window": WINDOW}
    part = Part(bag=Bag(0.4, 3))
    with SharedLoader(data, 10, seed=4, part=part, workers=2, linger=0.0, order=asked) as loader:
        found = [[target for _, targets in loader for target in targets.tolist()] for _ in range(2)]
    order = BlockOrder(SAMPLES, tuple(range(0, SAMPLES, CHUNK)), WINDOW)
    own = set(part.train(SAMPLES).tolist())
    assert found == [[one for one in order.of(4, epoch).tolist() if one in own] for epoch in range(2)]


def test_speed_is_measured_as_blocks_are_read_in_an_epoch(sources: dict[str, SourceSpec]) -> None:
    """Not with a chunk for each sample; and what is worth keeping is decided by samples of one block."""
    dataset = opened(sources["zarr"], CACHE, BLOCKS)
    source: Any = dataset.train_source
    before = source.chunks_read
    assert throughput(dataset, 0.0) > 0
    assert source.chunks_read - before <= 2 * 2  # of two variables: the first sample's, and a block's
    before = source.chunks_read
    assert sample_costs(dataset) is not None
    assert source.chunks_read - before <= 2
