"""The order by blocks: every sample once, a pure function, blocks in windows, and a window's blocks from all over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from preprocess import DataSpecError, OrderSpec, SampleLayout, SourceError, open_source
from preprocess.samples.order import BlockOrder, EpochOrders
from preprocess.samples.part import MemberOrder
from preprocess.samples.stream import LaneSchedule, LaneSpec, SampleOwners, StreamKey
from preprocess.sources.source import block_bytes, block_order, block_starts
from preprocess.store.futures import OwnedKeys

seeds, epochs = st.integers(0, 2**63), st.integers(0, 1000)
BY_BLOCKS = OrderSpec("blocks")


@st.composite
def orders(draw: st.DrawFn) -> BlockOrder:
    """Blocks of any lengths, in windows of any."""
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=40) | st.integers(1, 40).map(lambda n: [5] * n))
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return BlockOrder(sum(sizes), tuple(starts), draw(st.integers(1, 12)))


@settings(deadline=None)
@given(orders(), seeds, epochs)
def test_every_sample_comes_once_in_a_window_with_its_block(order: BlockOrder, seed: int, epoch: int) -> None:
    samples = order.of(seed, epoch)
    assert sorted(samples.tolist()) == list(range(order.length))
    assert np.array_equal(samples, BlockOrder(order.length, order.starts, order.window).of(seed, epoch))
    blocks = np.searchsorted(order.starts, samples, "right") - 1
    sizes = np.bincount(blocks)
    strata: list[list[int]] = []
    begin = 0
    while begin < order.length:  # a window ends where all of its blocks have ended
        inside, end = set[int](), begin
        while not inside or sum(sizes[list(inside)]) > end - begin or len(inside) < order.strata:
            if end == order.length:
                break
            inside.add(int(blocks[end]))
            end += 1
        assert sum(sizes[list(inside)]) == end - begin and len(inside) <= order.window
        strata.append(sorted(order.strata_of(samples[begin:end]).tolist()))
        begin = end
    assert len(strata) <= order.windows
    for window in strata[:-1]:
        assert set(window) == set(range(order.strata))


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 4), st.integers(1, 5))
def test_owners_have_whole_blocks_and_as_many_of_each_window(window: int, turns: int, size: int, writers: int) -> None:
    order = BlockOrder(window * turns * size, tuple(range(0, window * turns * size, size)), window)
    owners = SampleOwners(writers, (), order)
    whose = owners.of(np.arange(order.length)).reshape(-1, size)
    assert np.all(whose == whose[:, :1])
    for samples in order.of(3, 1).reshape(turns, window * size):
        counts = np.bincount(owners.of(samples), minlength=writers) // size
        assert counts.max() - counts.min() <= 1


def test_a_lost_maker_s_blocks_go_to_others_and_theirs_stay() -> None:
    order = BlockOrder(120, tuple(range(0, 120, 5)), 6)
    every = SampleOwners(3, (), order).of(np.arange(130))
    left = SampleOwners(3, (0, 2), order).of(np.arange(130))
    assert np.array_equal(every[every != 1], left[every != 1]) and set(left.tolist()) == {0, 2}
    for start in order.starts:
        assert len(set(left[start : start + 5].tolist())) == 1


@pytest.mark.parametrize("number", range(3))
def test_a_preprocessor_counts_its_own_samples_through(number: int) -> None:
    order = BlockOrder(100, tuple(range(0, 100, 7)), 4)
    own, owners = OwnedKeys(130, 3, number, order), SampleOwners(3, (), order)
    mine = np.flatnonzero(owners.of(np.arange(130)) == number)
    assert own.numbers(mine).tolist() == list(range(own.count)) == list(range(len(mine)))
    for key in range(130):
        assert own.number_of(key) == (mine.tolist().index(key) if key in mine else None)
    labels = own.admit(SampleOwners(3, tuple({0, 1, 2} - {(number + 1) % 3}), order))
    assert labels is not None and np.array_equal(labels, mine) and own.count == 130


@settings(deadline=None)
@given(seeds, epochs)
def test_other_seeds_and_epochs_have_other_orders(seed: int, epoch: int) -> None:
    order = BlockOrder(400, tuple(range(0, 400, 20)), 5)
    mine = order.of(seed, epoch)
    assert not np.array_equal(mine, order.of(seed, epoch + 1)) and not np.array_equal(mine, order.of(seed + 1, epoch))


def test_blocks_come_in_all_windows_and_samples_at_all_places() -> None:
    """Of 200 epochs, each of 8 windows has each block 25 times, give or take; so do a window's places and samples."""
    order = BlockOrder(64, tuple(range(0, 64, 2)), 4)
    drawn = np.stack([order.of(7, epoch) for epoch in range(200)])
    for block in range(32):
        windows = np.bincount(np.nonzero(drawn // 2 == block)[1] // 8, minlength=8) / 2
        assert windows.min() >= 8 and windows.max() <= 45
    places = np.bincount(np.nonzero(drawn == 9)[1] % 8, minlength=8)
    assert places.min() >= 8 and places.max() <= 45


def test_the_order_of_an_epoch_is_kept_as_it_is() -> None:
    """Runs go on with it: these numbers never change."""
    assert BlockOrder(12, (0, 3, 6, 9), 2).of(5, 1).tolist() == [3, 4, 9, 10, 5, 11, 0, 8, 6, 2, 7, 1]


@settings(deadline=None)
@given(orders(), st.data())
def test_a_part_s_order_is_the_stream_s_without_the_others(order: BlockOrder, data: st.DataObject) -> None:
    own = np.array(sorted(data.draw(st.sets(st.integers(0, order.length - 1), min_size=1))))
    member = MemberOrder(own, order.length, 4, order)
    stream = EpochOrders(order.length, blocks=order).of(4, 2)
    assert member.of_epoch(2).tolist() == [sample for sample in stream.tolist() if sample in own]
    assert np.array_equal(stream[member.places(2)], member.of_epoch(2))


def test_it_travels_with_a_lane() -> None:
    order = BlockOrder(10, (0, 4, 7), 2)
    spec = LaneSpec(0, 1, StreamKey("d", 0, 0), LaneSchedule(10), SampleLayout((1,), "uint8"), {0: (0,)}, blocks=order)
    adapter = TypeAdapter(LaneSpec)
    found = adapter.validate_json(adapter.dump_json(spec))
    assert found == spec and found.blocks is not None and np.array_equal(found.blocks.of(1, 1), order.of(1, 1))


@pytest.mark.parametrize("starts", [(), (1, 4), (0, 0), (0, 5, 3), (0, 10)])
def test_starts_ascend_from_0(starts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        BlockOrder(10, starts)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"shuffle": "block"}, "samples or blocks.*did you mean 'blocks'"),
        ({"shuffle": "blocks", "window": 0}, "window of an order"),
        ({"shuffle": "blocks", "block": True}, "block of an order"),
        ({"shuffle": "blocks", "windows": 3}, "no such key.*window"),
    ],
)
def test_what_no_order_can_be_is_refused(values: Mapping[str, Any], rule: str) -> None:
    with pytest.raises(DataSpecError, match=rule):
        OrderSpec.from_json(values)


class Numbers:
    """A map-style data set that may say where its blocks begin."""

    def __init__(self, starts: Any = None) -> None:
        if starts is not None:
            self.block_starts = starts

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full(3, index, np.float32), index


def starts_of(source: Any, order: OrderSpec = BY_BLOCKS) -> tuple[int, ...]:
    found = block_order(source, order, "numbers")
    assert found is not None
    return found.starts


def test_blocks_of_a_data_set_of_one_s_own() -> None:
    assert starts_of(open_source(Numbers([0, 8, 15]))) == (0, 8, 15)
    assert starts_of(open_source(Numbers()), OrderSpec("blocks", block=6)) == (0, 6, 12, 18)
    assert block_order(open_source(Numbers()), OrderSpec(), "numbers") is None
    with pytest.raises(SourceError, match="lie in no blocks.*block: 256"):
        starts_of(open_source(Numbers()))
    for wrong in ([1, 4], [0, 20], [0, 5, 5], ["a"], 3, [0.5]):
        with pytest.raises(SourceError, match="ascend from 0"):
            starts_of(open_source(Numbers(wrong)))


def test_blocks_are_joined_and_cut_out() -> None:
    source = open_source(Numbers([0, 3, 5, 9, 12, 18]))
    assert starts_of(source, OrderSpec("blocks", block=4)) == (0, 5, 9, 18)
    assert starts_of(source, OrderSpec("blocks", block=100)) == (0,)
    sliced = open_source(Numbers([0, 8, 15]), subset=[6, 18, 3])  # 6, 9, 12, 15
    assert starts_of(sliced) == (0, 1, 3)
    assert starts_of(open_source(Numbers([0, 8, 15]), subset=[18, 6, -3])) == (0, 2)  # 18, 15, 12, 9


def test_blocks_of_files(tmp_path: Path) -> None:
    values = np.arange(50, dtype=np.float32).reshape(25, 2)
    table = pa.table({"x": list(values), "y": list(range(25))})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=10)
    columns = {"inputs": "x", "targets": "y"}
    parquet = open_source("parquet", {"path": str(tmp_path / "t.parquet"), **columns})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=9)
    arrow = open_source("arrow", {"path": str(tmp_path / "t.arrow"), **columns})
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="w")
    group.create_array("x", shape=(25, 2), chunks=(8, 2), dtype="f4")[:] = values
    windows = {"path": str(tmp_path / "s.zarr"), "inputs": "x", "targets": "x"}
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_dataset("inputs", data=values, chunks=(6, 2))
        file["targets"] = np.arange(25)
    chunked = open_source("hdf5", {"path": str(tmp_path / "c.h5"), "cache": 3})
    np.savez(tmp_path / "a.npz", inputs=values, targets=np.arange(25))
    assert starts_of(parquet) == (0, 10, 20)
    assert starts_of(arrow) == (0, 9, 18)
    assert starts_of(open_source("zarr", windows)) == (0, 8, 16)
    assert starts_of(open_source("zarr", {**windows, "stride": 3})) == (0, 3, 6)
    assert starts_of(chunked) == (0, 6, 12, 18, 24)
    assert block_starts(open_source("numpy", {"path": str(tmp_path / "a.npz")})) is None
    assert block_bytes(chunked, 5) == (40, 3 << 20) and block_bytes(arrow, 3)[0] == 0
    assert 40 <= block_bytes(parquet, 3)[0] <= 400 and block_bytes(parquet, 3)[1] == 512 << 20
    assert block_bytes(open_source("zarr", windows), 4) == (50, 512 << 20)
