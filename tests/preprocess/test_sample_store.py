"""Samples that are kept: the same bytes as without, each prepared once where there is room, and nothing goes wrong."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess import Dataset, DatasetSpec, SourceSpec
from preprocess.making.costs import is_divided, is_worth_keeping, throughput
from preprocess.making.preprocessor import Preprocessor
from preprocess.store.sample_store import BlockAllocator, Keeping, SampleStore, StoreBudget
from tests.preprocess.support.keeping_team import (
    LANES,
    SLOT,
    WRITERS,
    Team,
    Visits,
    assert_same,
    expected,
    opened,
    whole,
)


@pytest.fixture(scope="module")
def dataset(pictures: Path) -> Dataset:
    return opened(pictures)


def test_each_sample_is_prepared_once_whatever_the_seeds_and_epochs(dataset: Dataset) -> None:
    team = Team(dataset, StoreBudget(64 << 20))
    schedules = [whole(dataset), whole(dataset, first_epoch=3), whole(dataset, first_epoch=1, first_place=77)]
    readers = [team.open(lane, 40 + lane, schedule) for lane, schedule in enumerate(schedules)]
    count = 2 * schedules[0].epoch_samples // SLOT * SLOT
    for start in range(0, count, 4 * SLOT):
        for lane, reader in enumerate(readers):
            length = min(4 * SLOT, count - start)
            assert_same(team.read(reader, length), expected(dataset, schedules[lane], 40 + lane, start, length))
    assert team.prepared == dataset.length + dataset.held_out
    told = [member.statistics for member in team.members]
    assert sum(each.prepared["pictures"] for each in told) == team.prepared
    assert sum(each.samples_of_data["pictures"] for each in told) == sum(each.samples for each in told) >= 3 * count
    assert not team.told


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_what_is_kept_changes_no_sample(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Lanes come and go at any place, for any makers, with any room in memory and on disk."""
    folder = str(tmp_path_factory.getbasetemp())
    memory, disk = data.draw(st.sampled_from([0, 30_000, 200_000, 4_000_000])), data.draw(st.sampled_from([0, 300_000]))
    team = Team(dataset, StoreBudget(memory, disk, folder))
    visits = Visits(team)
    for _ in range(data.draw(st.integers(3, 12))):
        lane = data.draw(st.integers(0, LANES - 1))
        if lane not in visits:
            schedule = whole(
                dataset, first_epoch=data.draw(st.integers(0, 2)), first_place=data.draw(st.integers(0, 235))
            )
            seed = data.draw(st.integers(0, 2))
            makers = data.draw(st.sampled_from([(), (0, 1, 2), (1,), (2, 0)]))
            visits.begin(lane, seed, schedule, makers)
        visits.read_on(lane, SLOT * data.draw(st.integers(1, 40)))
        if data.draw(st.booleans()):
            visits.end(lane)
    for stores in team.stores:
        for store in stores.values():
            assert store.statistics.kept_bytes <= memory + disk


def test_a_quarter_kept_saves_decodes(dataset: Dataset) -> None:
    """Four seeds, a store of a quarter of the set: fewer are prepared than with none, more than once each."""
    team = Team(dataset, StoreBudget(dataset.length * 40 * 40 * 3 // 4 // WRITERS))
    schedule = whole(dataset)
    readers = [team.open(lane, lane, schedule) for lane in range(4)]
    rounds = 3 * schedule.epoch_samples // SLOT
    for _ in range(rounds):
        for reader in readers:
            team.read(reader, SLOT)
    read = 4 * SLOT * rounds
    assert dataset.length < team.prepared < 0.75 * read


def test_a_disk_that_is_full_is_told_and_changes_nothing(dataset: Dataset, tmp_path: Path) -> None:
    team = Team(dataset, StoreBudget(20_000))
    shape, layout = team.ring.shape, dataset.prepared_layout
    assert layout is not None
    told: list[str] = []
    samples = dataset.length + dataset.held_out
    budget = StoreBudget(20_000, 2**50, str(tmp_path))
    store = SampleStore(budget, layout, dataset.orders, samples, Keeping(WRITERS, 0, LANES, SLOT), told.append)
    team.members[0] = Preprocessor(team.ring, 0, {"pictures": dataset}, stores={"pictures": store})
    assert shape.writers == WRITERS and len(told) == 1 and "disk" in told[0]
    schedule = whole(dataset)
    assert_same(team.read(team.open(0, 1, schedule), 64), expected(dataset, schedule, 1, 0, 64))


def test_a_disk_that_fails_later_is_told_and_changes_nothing(dataset: Dataset, tmp_path: Path) -> None:
    team = Team(dataset, StoreBudget(20_000, 4_000_000, str(tmp_path)))
    schedule = whole(dataset)
    reader = team.open(0, 1, schedule)
    start = team.read(reader, 160)
    for number in os.listdir("/proc/self/fd"):
        if os.path.realpath(f"/proc/self/fd/{number}").startswith(str(tmp_path)):
            os.truncate(f"/proc/self/fd/{number}", 0)
    count = 2 * schedule.epoch_samples // SLOT * SLOT
    rest = team.read(reader, count - 160)
    both = tuple(np.concatenate(parts) for parts in zip(start, rest))
    assert_same((both[0], both[1]), expected(dataset, schedule, 1, 0, count))
    assert team.told


def test_no_file_of_a_store_has_a_name(dataset: Dataset, tmp_path: Path) -> None:
    team = Team(dataset, StoreBudget(20_000, 4_000_000, str(tmp_path)))
    schedule = whole(dataset)
    team.read(team.open(0, 1, schedule), 200)
    assert os.listdir(tmp_path) == []


def test_a_corrupt_sample_is_replaced_by_the_same_one(pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(pictures, tmp_path / "broken")
    for number in (10, 31, 32):
        victim = sorted((tmp_path / "broken" / "train" / f"class{number % 2}").iterdir())[number // 2]
        victim.write_bytes(victim.read_bytes()[:40])
    broken = opened(tmp_path / "broken", on_corrupt="skip")
    team = Team(broken, StoreBudget(64 << 20))
    schedule = whole(broken)
    reader = team.open(0, 9, schedule)
    plain = opened(tmp_path / "broken", on_corrupt="skip")
    count = 2 * schedule.epoch_samples // SLOT * SLOT
    assert_same(team.read(reader, count), expected(plain, schedule, 9, 0, count))


@pytest.mark.parametrize(("length", "divided"), [(64 * 4 - 25, True), (64 * 4 - 26, False)])
def test_each_preprocessor_needs_samples_of_its_own(length: int, divided: bool) -> None:
    assert is_divided(length, 25, 4) is divided


def test_a_source_of_ones_own_is_kept_by_ones_word_alone(pictures: Path) -> None:
    assert is_worth_keeping(opened(pictures))
    assert not is_worth_keeping(opened(pictures, store=False))
    own = DatasetSpec("own", SourceSpec([(np.zeros((8, 8, 3), np.uint8), 1)] * 4))
    assert not is_worth_keeping(Dataset(own))
    assert Dataset(replace(own, store=True)).prepared_layout is not None


@given(st.lists(st.tuples(st.integers(1, 400), st.booleans()), max_size=60))
def test_blocks_never_overlap_and_all_come_back(wishes: list[tuple[int, bool]]) -> None:
    blocks = BlockAllocator(4096)
    held: list[tuple[int, int]] = []
    for size, gives in wishes:
        if gives and held:
            blocks.give(*held.pop(size % len(held)))
            continue
        offset = blocks.take(size)
        if offset is not None:
            assert all(offset + size <= start or start + length <= offset for start, length in held)
            assert offset >= 0 and offset + size <= 4096
            held.append((offset, size))
    for each in held:
        blocks.give(*each)
    assert blocks.take(4096) == 0


def test_a_few_corrupt_samples_do_not_hide_what_preparing_costs(pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(pictures, tmp_path / "broken")
    first = min((tmp_path / "broken" / "train" / "class0").iterdir())
    first.write_bytes(b"")
    assert is_worth_keeping(opened(tmp_path / "broken", on_corrupt="skip"))


def test_throughput_of_kept_samples_times_them_without_reading(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = opened(pictures)
    preparation = data.preparation("train")
    read, finished = preparation.source.read, preparation.finish
    reads: list[int] = []
    at_finish: list[int] = []

    def noted_read(index: int) -> Any:
        reads.append(index)
        return read(index)

    def noted_finish(*given: Any) -> None:
        at_finish.append(len(reads))
        finished(*given)

    monkeypatch.setattr(preparation.source, "read", noted_read)
    monkeypatch.setattr(preparation, "finish", noted_finish)
    throughput(data, 0.1, kept=1.0)
    assert len(at_finish) > 1 and set(at_finish) == {len(reads)}, "all that is read is read before"
