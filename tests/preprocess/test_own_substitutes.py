"""What a network with a part of the samples takes in place of those that cannot be made: samples of its part alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess import Bag, Dataset, DatasetSpec, Fold, Part, SharedLoader, SourceSpec
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import RingShape, lane_bytes
from preprocess.ring.ring import Ring
from preprocess.samples.errors import SampleError
from preprocess.samples.layout import ITSELF, places_in
from preprocess.samples.order import HELD_OUT, TRAIN, mask_of
from preprocess.samples.part import MemberOrder
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from preprocess.store.finished_samples import FinishedSamples
from tests.preprocess.support.counting import counted
from tests.preprocess.support.damaged import damaged_module, skipping

BATCH, LENGTH, SEED, BROKEN = 8, 103, 3, (5, 7, 40, 41, 42, 90)
SLOT = 8


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    with damaged_module(tmp_path) as found:
        found.BROKEN.update({(True, sample): "raise" for sample in (5, 17)} | {(False, 3): "raise"})
        yield found


def taken(dataset: Dataset, kind: str, sample: int, own: np.ndarray | None, epoch: int = 0, seed: int = 1) -> int:
    """What is taken in a sample's place."""
    inputs, targets = dataset.layout.empty(1)
    said = dataset.make(kind, seed, epoch, sample, inputs[0], targets, own=own)
    assert np.all(inputs == targets[0]) and targets[0] == (sample if said == ITSELF else said)
    return said


@settings(max_examples=40, deadline=None)
@given(own=st.sets(st.integers(0, 39), min_size=2), seed=st.integers(0, 3), epoch=st.integers(0, 3))
def test_it_is_one_of_the_part_and_the_stream_s_where_that_is(
    tmp_path_factory: pytest.TempPathFactory, own: set[int], seed: int, epoch: int
) -> None:
    with damaged_module(tmp_path_factory.mktemp("own")) as module:
        module.BROKEN[True, 5] = "raise"
        data, mask = skipping()[0], mask_of(np.array(sorted(own | {5}), np.int64), 40)
        of_all, of_part = taken(data, TRAIN, 5, None, epoch, seed), taken(data, TRAIN, 5, mask, epoch, seed)
        assert of_part in own - {5} and of_part in (of_all, *(own - {of_all}))
        assert (of_part == of_all) == (of_all in own)
        assert taken(data, TRAIN, 6, mask, epoch, seed) == ITSELF
        inputs, targets = data.layout.empty(1)
        again = data.make_substitute(TRAIN, seed, epoch, 5, inputs[0], targets, mask)
        assert again == of_part == targets[0], "who hears that it is corrupt takes the same one as who finds it"


def test_held_out_samples_have_one_of_their_fold_in_all_epochs(module: ModuleType) -> None:
    data, fold = skipping()[0], mask_of(np.array([1, 3, 6, 9]), 12)
    assert len({taken(data, HELD_OUT, 3, fold, epoch) for epoch in range(6)}) == 1
    assert taken(data, HELD_OUT, 3, fold) in (1, 6, 9)


def test_one_of_a_small_part_is_found_however_large_the_data_set(module: ModuleType) -> None:
    data, _ = skipping(length=100_000)
    assert {taken(data, TRAIN, 5, mask_of(np.array([5, 17, 99_998]), 100_000), epoch) for epoch in range(5)} == {99_998}


def test_a_part_without_another_sample_says_so(module: ModuleType) -> None:
    for own, words in (((5,), "no other sample of the part"), ((5, 17), "none of 1 others of the part could be made")):
        with pytest.raises(SampleError, match=words):
            taken(skipping()[0], TRAIN, 5, mask_of(np.array(own), 40))


def told(schedule: LaneSchedule, divided: bool, makers: int, finished: int) -> list[list[int]]:
    """What the readers of two lanes, one after the other, hear of each sample."""
    sets = [skipping()[0] for _ in range(makers)]
    layout = sets[0].layout
    ring = Ring.forked(RingShape(2, lane_bytes(layout, 96, SLOT, makers), SLOT, 2, makers))
    kept = [FinishedSamples(finished, makers) if finished else None for _ in sets]
    team = [Preprocessor(ring, i, {"numbers": data}, finished=kept[i]) for i, data in enumerate(sets)]
    heard = []
    for lane in range(2):
        spec = LaneSpec(
            lane, 1, StreamKey("numbers", 1, 0), schedule, layout, {0: (lane,)}, divided=divided, awaited_from=0
        )
        ring.lanes[lane].open(layout, [lane], 1, divided=divided)
        for preprocessor in team:
            preprocessor.open_lane(spec)
        reader = ring.lanes[lane].reader(lane, layout, 1)
        while sum(preprocessor.step() for preprocessor in team):
            pass
        said = np.empty(schedule.epoch_samples, np.int64)
        reader.gather(np.arange(schedule.epoch_samples), 5.0, substitutes=said)
        heard.append(said.tolist())
    assert not finished or any(keeper is not None and keeper.copied for keeper in kept)
    return heard


@pytest.mark.parametrize("finished", [0, 1 << 20])
@pytest.mark.parametrize(("divided", "makers"), [(False, 1), (False, 3), (True, 2)])
def test_readers_of_a_lane_hear_which_samples_others_stand_for(
    module: ModuleType, divided: bool, makers: int, finished: int
) -> None:
    schedule, data = LaneSchedule(40, 3, 12, last_epoch=0), skipping()[0]
    spans = list(schedule.spans(0, schedule.epoch_samples))
    samples = [(span.kind, sample) for span in spans for sample in data.samples_of(span, 1).tolist()]
    wanted = [taken(data, kind, sample, None) for kind, sample in samples]
    assert sum(said != ITSELF for said in wanted) >= 3
    assert told(schedule, divided, makers, finished) == [wanted, wanted]


def test_lanes_of_other_data_say_nothing_and_take_no_room(module: ModuleType) -> None:
    plain, noted = Dataset(DatasetSpec("a", SourceSpec([(np.zeros(3), 0)] * 9))).layout, skipping()[0].layout
    assert plain.target_bytes == 8 and noted.target_bytes == 16
    ring = Ring.forked(RingShape(1, 4096, SLOT, 1, 1))
    ring.lanes[0].open(plain, [0], 1)
    assert ring.lanes[0].reader(0, plain, 1).substitutes([0, 1]).tolist() == [ITSELF, ITSELF]


def test_ragged_samples_are_replaced_too() -> None:
    source = SourceSpec("tests.preprocess.support.ragged_bytes:Bytes", {"count": 30, "giant": 4})
    data, own = Dataset(DatasetSpec("bytes", source, on_corrupt="skip")), mask_of(np.array([4, 6, 9]), 30)
    inputs, targets = data.layout.empty(1)
    assert data.make(TRAIN, 0, 0, 4, places_in(inputs)(0), targets, own=own) in (6, 9)
    assert inputs[0].nbytes == targets[0]


def plain(values: dict[str, Any], part: Part, kind: str, epoch: int) -> list[int]:
    """The targets that one process takes alone, in its order."""
    data = Dataset(DatasetSpec.from_json(values | {"held_out": values["train"]}))
    order = MemberOrder(part.train(LENGTH), LENGTH, SEED)
    samples = order.of_epoch(epoch) if kind == TRAIN else part.held_out(LENGTH)
    own = order.own if kind == TRAIN else mask_of(samples, LENGTH)
    inputs, targets = data.layout.empty(len(samples))
    for row, sample in enumerate(samples.tolist()):
        data.make(kind, SEED, epoch, sample, inputs[row], targets[row : row + 1], own=own)
    found: list[int] = targets.tolist()
    return found


PARTS = (Part(fold=Fold(1, 4, 0)), Part(subset=60, bag=Bag(0.4, 7)), Part(subset=(3, 5, 7, 90, 91)))


def generators() -> list[object]:
    """The states of the process-wide generators, and torch's threads."""
    _, keys, *rest = np.random.get_state(legacy=True)
    return [random.getstate(), torch.get_rng_state().tolist(), np.asarray(keys).tolist(), rest, torch.get_num_threads()]


CASES = [*((TRAIN, part) for part in PARTS), *((HELD_OUT, Part(fold=Fold(fold, 4, 0))) for fold in range(2, 4))]


@pytest.mark.parametrize(("kind", "part"), CASES)
@pytest.mark.filterwarnings("ignore:another sample was taken")
def test_loaders_of_parts_take_samples_of_their_parts(loader_folder: Path, kind: str, part: Part) -> None:
    values = counted(loader_folder, broken=BROKEN) | {"on_corrupt": "skip"}
    own = set((part.train(LENGTH) if kind == TRAIN else part.held_out(LENGTH)).tolist())
    assert own & set(BROKEN)
    with SharedLoader(values, BATCH, seed=SEED, part=part, held_out=kind == HELD_OUT, workers=2, linger=0.0) as loader:
        for epoch in range(2):
            before = generators()
            targets = [target for _, batch in loader for target in batch.tolist()]
            assert generators() == before, "they are the script's own"
            assert set(targets) <= own - set(BROKEN)
            assert targets == plain(values, part, kind, epoch)
        assert len({sample.sample for sample in loader.skipped}) == len(loader.skipped)
