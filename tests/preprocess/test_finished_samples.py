"""Finished samples that are kept: the same bytes as without, each made once where there is room, and no more memory."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess import Dataset, DatasetSpec, SampleLayout, SourceSpec
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from preprocess.store.finished_samples import FinishedSamples, SlotPortion
from preprocess.store.sample_store import StoreBudget
from tests.preprocess.support.keeping_team import LANES, SLOT, Team, Visits, assert_same, expected, opened, whole

PLENTY = 64 << 20
WAYS = pytest.mark.parametrize(("divided", "makers"), [(True, ()), (False, (1,)), (True, (2, 0))])


@pytest.fixture(scope="module")
def dataset(pictures: Path) -> Dataset:
    return opened(pictures)


def made(team: Team) -> int:
    """Samples that were made, and not copied."""
    return sum(member.statistics.prepared.get("pictures", 0) for member in team.members)


def laid(team: Team) -> int:
    return sum(member.statistics.samples for member in team.members)


@WAYS
def test_an_epoch_that_others_await_is_made_once(dataset: Dataset, divided: bool, makers: tuple[int, ...]) -> None:
    team = Team(dataset, None, finished=PLENTY)
    schedule = whole(dataset, first_epoch=1, last_epoch=1)
    for lane in range(3):
        reader = team.open(lane, 7, schedule, makers, divided, awaited_from=1)
        assert_same(
            team.read(reader, schedule.epoch_samples), expected(dataset, schedule, 7, 0, schedule.epoch_samples)
        )
        team.close(lane, reader)
    assert laid(team) == 3 * schedule.epoch_samples
    assert made(team) < schedule.epoch_samples + 2 * SLOT, "once, but for slots in which some samples are new"


def test_a_lane_that_begins_elsewhere_finds_them_too(dataset: Dataset) -> None:
    team = Team(dataset, None, finished=PLENTY)
    first, second = whole(dataset, last_epoch=0), whole(dataset, first_place=101, last_epoch=0)
    team.read(team.open(0, 7, first, (0,), divided=False, awaited_from=0), first.epoch_samples)
    before = made(team)
    assert second.end is not None
    found = team.read(team.open(1, 7, second, (0,), divided=False), second.end)
    assert_same(found, expected(dataset, second, 7, 0, second.end))
    assert made(team) == before


def test_held_out_samples_are_made_once_for_all_epochs_of_a_stream(dataset: Dataset) -> None:
    team = Team(dataset, None, finished=PLENTY)
    schedule = whole(dataset, last_epoch=3)
    assert schedule.end is not None
    reader = team.open(0, 7, schedule, (0,), divided=False)
    assert_same(team.read(reader, schedule.end), expected(dataset, schedule, 7, 0, schedule.end))
    training = 4 * schedule.places
    assert training + dataset.held_out <= made(team) < training + dataset.held_out + 8 * SLOT


def test_nothing_is_kept_of_epochs_that_nobody_awaits(dataset: Dataset) -> None:
    team = Team(dataset, None, finished=PLENTY)
    schedule = LaneSchedule(dataset.length, 5, last_epoch=0)
    for lane in range(2):
        reader = team.open(lane, 7, schedule, (0,), divided=False)
        team.read(reader, schedule.places // SLOT * SLOT)
        team.close(lane, reader)
    assert made(team) == laid(team) and finished_bytes(team) == 0


def test_other_seeds_and_epochs_are_other_samples(dataset: Dataset) -> None:
    team = Team(dataset, None, finished=PLENTY)
    for lane, (seed, epoch) in enumerate([(7, 0), (7, 1), (8, 0)]):
        schedule = whole(dataset, first_epoch=epoch)
        reader = team.open(lane, seed, schedule, (0,), divided=False, awaited_from=0)
        assert_same(team.read(reader, 80), expected(dataset, schedule, seed, 0, 80))
    assert made(team) == laid(team) >= 240


def test_a_store_hears_of_samples_that_are_copied(dataset: Dataset) -> None:
    """Prepared and finished samples are kept together: other seeds still find the prepared ones."""
    team = Team(dataset, StoreBudget(PLENTY), finished=PLENTY)
    schedule, other = whole(dataset, last_epoch=0), whole(dataset, last_epoch=0)
    for lane, seed in enumerate([7, 7, 8]):
        reader = team.open(lane, seed, schedule, awaited_from=0)
        found = team.read(reader, schedule.epoch_samples)
        assert_same(found, expected(dataset, other, seed, 0, schedule.epoch_samples))
    assert team.prepared == dataset.length + dataset.held_out


def finished_bytes(team: Team) -> int:
    return sum(kept.nbytes for kept in team.finished)


@pytest.mark.parametrize("awaited_from", [None, 0])
def test_held_out_samples_that_a_store_keeps_are_not_kept_again(dataset: Dataset, awaited_from: int | None) -> None:
    """They have no transforms that draw, so what the store keeps of them is finished."""
    schedule, sizes = whole(dataset, last_epoch=2), []
    assert schedule.end is not None
    for held_out in (dataset.held_out, 0):
        team, mine = Team(dataset, StoreBudget(PLENTY), finished=PLENTY), replace(schedule, held_out=held_out)
        assert mine.end is not None
        found = team.read(team.open(0, 7, mine, awaited_from=awaited_from), mine.end)
        assert_same(found, expected(dataset, mine, 7, 0, mine.end))
        assert team.prepared == dataset.length + held_out, "each is read and prepared once"
        sizes.append(finished_bytes(team))
    assert sizes[0] == sizes[1] and (sizes[0] > 0) == (awaited_from is not None)


def test_held_out_samples_that_a_store_has_no_room_for_are_kept(dataset: Dataset) -> None:
    team, schedule = Team(dataset, StoreBudget(100_000), finished=PLENTY), whole(dataset, last_epoch=2)
    assert schedule.end is not None
    found = team.read(team.open(0, 7, schedule), schedule.end)
    assert_same(found, expected(dataset, schedule, 7, 0, schedule.end))
    assert finished_bytes(team) > 0


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_what_is_kept_changes_no_sample(dataset: Dataset, data: Any) -> None:
    """Lanes come and go at any place, for any makers, whoever awaits what, with any room."""
    room = data.draw(st.sampled_from([0, 100_000, 500_000, PLENTY]))
    budget = data.draw(st.sampled_from([None, StoreBudget(0), StoreBudget(200_000)]))
    team = Team(dataset, budget, finished=room or 1)
    visits = Visits(team)
    for _ in range(data.draw(st.integers(3, 12))):
        lane = data.draw(st.integers(0, LANES - 1))
        if lane not in visits:
            epoch, place = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 235))
            schedule = whole(dataset, first_epoch=epoch, first_place=place)
            seed, divided = data.draw(st.integers(0, 1)), data.draw(st.booleans())
            makers = data.draw(st.sampled_from([(), (0, 1, 2), (1,), (2, 0)] if divided else [(0,), (1,)]))
            visits.begin(lane, seed, schedule, makers, divided, data.draw(st.none() | st.integers(0, 3)))
        visits.read_on(lane, SLOT * data.draw(st.integers(1, 40)))
        if data.draw(st.booleans()):
            visits.end(lane)


def test_a_corrupt_sample_is_replaced_by_the_same_one(pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(pictures, tmp_path / "broken")
    victim = min((tmp_path / "broken" / "train" / "class0").iterdir())
    victim.write_bytes(victim.read_bytes()[:40])
    broken, plain = (opened(tmp_path / "broken", on_corrupt="skip") for _ in range(2))
    team, schedule = Team(broken, None, finished=PLENTY), whole(broken, last_epoch=0)
    for lane in range(2):
        reader = team.open(lane, 9, schedule, (0,), divided=False, awaited_from=0)
        found = team.read(reader, schedule.epoch_samples)
        assert_same(found, expected(plain, schedule, 9, 0, schedule.epoch_samples))


def test_samples_that_are_copied_as_cheaply_anyway_are_not_kept(pictures: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", inputs=np.zeros((8, 3), np.float32), targets=np.zeros(8, np.int64))
    arrays = SourceSpec("numpy", {"path": str(tmp_path / "some.npz"), "inputs": "inputs", "targets": "targets"})
    assert opened(pictures).keeps_finished and not opened(pictures, store=False).keeps_finished
    assert not Dataset(DatasetSpec("arrays", arrays)).keeps_finished


LAYOUT_BYTES = 16 * 3 + 8


def lane(number: int, epoch: int, awaited_from: int | None, seed: int = 0) -> LaneSpec:
    """A lane of 16 training samples of 48 bytes, and no held-out ones."""
    layout = SampleLayout((4, 4, 3), "uint8")
    key = StreamKey("tiny", seed, epoch)
    return LaneSpec(
        number, 1, key, LaneSchedule(16, first_epoch=epoch), layout, {0: (0,)}, makers=(0,), awaited_from=awaited_from
    )


def portion(spec: LaneSpec, fill: int) -> SlotPortion:
    """The first epoch of a lane, as one slot."""
    inputs, targets = spec.layout.empty(16)
    inputs[:], targets[:] = fill, fill
    return SlotPortion(spec, 0, np.arange(16), inputs, targets)


def has(kept: FinishedSamples, spec: LaneSpec) -> bool:
    return kept.copy(portion(spec, 0))


def test_what_all_have_passed_goes_and_what_somebody_awaits_stays() -> None:
    kept = FinishedSamples(PLENTY)
    for epoch in range(4):
        kept.open(lane(0, epoch, awaited_from=0))
        kept.keep(portion(lane(0, epoch, awaited_from=0), epoch))
    kept.open(lane(0, 3, awaited_from=2))
    assert [has(kept, lane(0, epoch, 0)) for epoch in range(4)] == [False, False, True, True]
    kept.open(lane(0, 3, awaited_from=None))
    assert [has(kept, lane(0, epoch, 0)) for epoch in range(4)] == [False, False, False, True]


def holds(kept: FinishedSamples, epochs: range) -> list[int]:
    """Which of these epochs of the tiny stream are kept."""
    return [epoch for epoch in epochs if has(kept, lane(9, epoch, None))]


def test_what_a_lane_has_passed_goes_at_once_where_nobody_else_awaits_it() -> None:
    kept = FinishedSamples(PLENTY)
    first = replace(lane(0, 0, awaited_from=0), schedule=LaneSchedule(16))
    kept.open(first)
    for epoch in range(3):
        kept.keep(replace(portion(first, epoch), start=16 * epoch))
    assert holds(kept, range(4)) == [0, 1, 2]
    kept.close(first)
    second = replace(first, generation=2, awaited_from=None)
    kept.open(second)
    for epoch in range(4):
        assert kept.copy(replace(portion(second, 0), start=16 * epoch)) == (epoch < 3)
        assert holds(kept, range(4)) == list(range(epoch, 3))
    assert kept.nbytes == 0


def test_what_others_await_no_more_goes_at_once_and_no_more_of_it_is_kept() -> None:
    kept, spec = FinishedSamples(PLENTY), replace(lane(0, 0, awaited_from=0), schedule=LaneSchedule(16))
    kept.open(spec)
    for epoch in range(2):
        kept.keep(replace(portion(spec, epoch), start=16 * epoch))
    kept.keep_awaited("tiny", 1, None, {})
    assert holds(kept, range(3)) == [0, 1], "that is another stream"
    kept.keep_awaited("tiny", 0, 1, {0: 0, 3: 5})
    kept.copy(replace(portion(spec, 0), start=32))
    kept.keep(replace(portion(spec, 2), start=32))
    assert holds(kept, range(3)) == [1, 2], "another network waits at epoch 1, and the lane itself has come to 2"
    kept.keep_awaited("tiny", 0, None, {0: 1})
    assert holds(kept, range(4)) == [2], "what is being read may yet be copied"
    kept.keep(replace(portion(spec, 3), start=48))
    assert holds(kept, range(4)) == [2]
    kept.close(spec)
    assert holds(kept, range(4)) == [2], "its readers may come again"
    kept.keep_awaited("tiny", 0, None, {})
    assert kept.nbytes == 0


def test_held_out_samples_stay_until_nobody_reads_their_stream() -> None:
    spec = replace(lane(0, 0, awaited_from=None), schedule=LaneSchedule(16, 0, 16))
    kept, held_out = FinishedSamples(PLENTY), replace(portion(spec, 1), start=16)
    kept.open(spec)
    kept.keep(held_out)
    kept.keep_awaited("tiny", 0, None, {0: 7})
    kept.close(spec)
    assert kept.copy(held_out)
    kept.keep_awaited("tiny", 0, 7, {})
    assert kept.copy(held_out)
    kept.keep_awaited("tiny", 0, None, {})
    assert not kept.copy(held_out) and kept.nbytes == 0


def test_an_older_opening_of_a_lane_ends_without_harm_to_the_newer_one() -> None:
    kept, old = FinishedSamples(PLENTY), lane(0, 0, awaited_from=None)
    new = replace(lane(0, 0, awaited_from=0, seed=1), generation=2)
    for spec in (old, new):
        kept.open(spec)
    kept.keep(portion(new, 1))
    kept.close(old)
    assert has(kept, new)


def test_no_more_is_kept_than_there_is_room_for_and_idle_streams_make_way() -> None:
    need = 16 * LAYOUT_BYTES + 16 * 4
    kept = FinishedSamples(2 * need)
    specs = [lane(number, 0, awaited_from=0, seed=number) for number in range(3)]
    for spec in specs:
        kept.open(spec)
        kept.keep(portion(spec, 1))
    assert [has(kept, spec) for spec in specs] == [True, True, False], "all three are open"
    kept.close(specs[0])
    kept.keep(portion(specs[2], 1))
    assert [has(kept, spec) for spec in specs] == [False, True, True]
    kept.keep(portion(replace(specs[2], stream=replace(specs[2].stream, seed=9)), 1))
    assert [has(kept, spec) for spec in specs] == [False, True, True], "streams of open lanes stay"


def test_what_is_copied_is_counted_by_data_set() -> None:
    kept, spec = FinishedSamples(PLENTY), lane(0, 0, awaited_from=0)
    kept.open(spec)
    assert not has(kept, spec)
    kept.keep(portion(spec, 3))
    again = portion(spec, 0)
    assert kept.copy(again) and again.inputs.min() == 3 == again.targets.min()
    assert kept.copied == {"tiny": 16}
