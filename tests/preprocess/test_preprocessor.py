"""A preprocessor and its readers in one process: what lies in a lane, turns, errors, statistics."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from benchmarks.closing import close_all
from preprocess import Dataset, DatasetSpec, DataSpecError, SampleLayout, SourceSpec
from preprocess.making.costs import throughput
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import RingShape, lane_bytes
from preprocess.ring.ring import LaneReader, Ring
from preprocess.samples.errors import LaneError, RingTimeout, SampleError, TransformError
from preprocess.samples.order import HELD_OUT, TRAIN, epoch_order
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey

SLOT = 8


def make_ring(dataset: Dataset, lanes: int = 1, writers: int = 1) -> Ring:
    return Ring.forked(RingShape(lanes, lane_bytes(dataset.layout, 64, SLOT, writers), SLOT, 2, writers))


def lane_spec(dataset: Dataset, schedule: LaneSchedule, lane: int = 0, generation: int = 1, seed: int = 3) -> LaneSpec:
    stream = StreamKey(dataset.name, seed, schedule.first_epoch)
    return LaneSpec(lane, generation, stream, schedule, dataset.layout, {0: (0,)})


def start(ring: Ring, spec: LaneSpec, *preprocessors: Preprocessor) -> LaneReader:
    lane = ring.lanes[spec.lane]
    lane.open(spec.layout, spec.readers[0], spec.generation, makers=spec.makers, ahead=spec.ahead)
    for preprocessor in preprocessors:
        preprocessor.open_lane(spec)
    return lane.reader(0, spec.layout, spec.generation)


def run(reader: LaneReader, stop: int, *preprocessors: Preprocessor) -> tuple[np.ndarray, np.ndarray]:
    """Read all positions before `stop`, letting the preprocessors work in between."""
    inputs, targets = [], []
    for begin in range(0, stop, SLOT):
        end = min(begin + SLOT, stop)
        while reader.available < end:
            for preprocessor in preprocessors:
                preprocessor.step()
            reader.wait(min(reader.available + SLOT, end), timeout=5)
        some_inputs, some_targets = reader.take(np.arange(begin, end))
        inputs.append(some_inputs)
        targets.append(some_targets)
        reader.release(end)
    return np.concatenate(inputs), np.concatenate(targets)


@pytest.fixture(scope="module")
def dataset(data_values: dict[str, Any]) -> Dataset:
    return Dataset(DatasetSpec.from_json(data_values))


@pytest.mark.parametrize("writers", [1, 3])
def test_a_lane_holds_what_its_schedule_says(dataset: Dataset, digits: dict[str, str], writers: int) -> None:
    """Two epochs with tail and held-out samples from the middle of epoch 1 on, against a plain loop."""
    schedule = LaneSchedule(dataset.length, 5, dataset.held_out, first_epoch=1, first_place=90, last_epoch=2)
    ring = make_ring(dataset, writers=writers)
    team = [Preprocessor(ring, index, {dataset.name: dataset}) for index in range(writers)]
    reader = start(ring, lane_spec(dataset, schedule), *team)
    assert schedule.end is not None
    inputs, targets = run(reader, schedule.end, *team)
    assert not any(preprocessor.step() for preprocessor in team)  # nothing is made past the end

    row = []
    for epoch in (1, 2):
        order = epoch_order(dataset.length, 3, epoch).tolist()
        row += [(TRAIN, epoch, sample) for sample in (order + order[:5])[90 if epoch == 1 else 0 :]]
        row += [(HELD_OUT, epoch, sample) for sample in range(dataset.held_out)]
    labels = {TRAIN: np.load(digits["train_targets"]), HELD_OUT: np.load(digits["held_out_targets"])}
    held_out = np.load(digits["held_out_inputs"])
    one, one_target = dataset.layout.empty(1)
    assert len(row) == len(inputs)
    for place, (kind, epoch, sample) in enumerate(row):
        dataset.make(kind, 3, epoch, sample, one[0], one_target)
        assert np.array_equal(inputs[place], one[0]) and targets[place] == labels[kind][sample]
        if kind == HELD_OUT:
            assert np.array_equal(inputs[place][..., 0], held_out[sample][1:9, 0:8])


@pytest.mark.parametrize("makers", [(0,), (2,), (1, 0), (2, 0, 1), ()])
def test_who_fills_a_lane_changes_no_sample(dataset: Dataset, makers: tuple[int, ...]) -> None:
    """One ring, opened again and again for other makers; those that are not named rest."""
    schedule = LaneSchedule(dataset.length, 5, dataset.held_out, last_epoch=0)
    ring = make_ring(dataset, writers=3)
    team = [Preprocessor(ring, index, {dataset.name: dataset}) for index in range(3)]
    expected = dataset.layout.empty(schedule.end or 0)
    for _ in dataset.fill(schedule, 3, 0, *expected):
        pass
    for generation, named in enumerate([(0, 1, 2), makers, (1,)], 1):
        spec = replace(lane_spec(dataset, schedule, generation=generation), makers=named)
        at_work = [each for each in team if spec.is_made_by(each.index)]
        reader = start(ring, spec, *at_work)
        assert [each.rests for each in team] == [each not in at_work for each in team]
        inputs, targets = run(reader, schedule.end or 0, *at_work)
        assert np.array_equal(inputs, expected[0]) and np.array_equal(targets, expected[1])
        reader.leave()
        for each in at_work:
            each.close_lane(0)
        assert all(each.rests for each in team) and ring.lanes[0].is_idle


def test_only_makers_fill_a_lane_and_only_the_rings_writers_are_makers(dataset: Dataset) -> None:
    ring = make_ring(dataset, writers=2)
    spec = replace(lane_spec(dataset, LaneSchedule(dataset.length)), makers=(1,))
    with pytest.raises(LaneError, match=r"preprocessor 0 has no part in lane 0: \(1,\) fill it"):
        Preprocessor(ring, 0, {dataset.name: dataset}).open_lane(spec)
    for makers in ((2,), (0, 0), (-1,)):
        with pytest.raises(LaneError, match="each is one of the ring's writers, 0 to 1"):
            ring.lanes[0].open(spec.layout, (0,), 1, makers=makers)


def test_samples_differ_between_epochs_and_seeds(dataset: Dataset) -> None:
    def made(kind: str, seed: int, epoch: int) -> bytes:
        inputs, targets = dataset.layout.empty(17)
        for sample in range(17):
            dataset.make(kind, seed, epoch, sample, inputs[sample], targets[sample : sample + 1])
        return inputs.tobytes()

    assert made(TRAIN, 1, 1) == made(TRAIN, 1, 1)
    assert len({made(TRAIN, 1, 1), made(TRAIN, 1, 2), made(TRAIN, 2, 1)}) == 3
    assert made(HELD_OUT, 1, 1) == made(HELD_OUT, 1, 2)


@pytest.mark.parametrize("subset", [None, 11, [30, 3, -2]])
@pytest.mark.parametrize("most", [1 << 20, 100])
def test_samples_of_arrays_are_copied_together_and_are_those_that_are_made_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subset: Any, most: int
) -> None:
    monkeypatch.setattr("preprocess.making.dataset._MOST_COPIED", most)
    draw = np.random.default_rng(1)
    for part, count in {"train": 37, "held_out": 9}.items():
        np.savez(
            tmp_path / f"{part}.npz", inputs=draw.integers(0, 256, (count, 5, 4), np.uint8),
            targets=draw.integers(0, 9, count, np.uint8),
        )  # fmt: skip
    train, held_out = (SourceSpec("numpy", {"path": str(tmp_path / f"{part}.npz")}) for part in ("train", "held_out"))
    spec = DatasetSpec("arrays", replace(train, subset=subset), held_out, on_corrupt="skip")
    copied, alone = Dataset(spec), Dataset(spec)
    schedule = LaneSchedule(copied.length, 3, copied.held_out, first_epoch=1, first_place=4)
    count = 3 * schedule.epoch_samples
    inputs, targets = copied.layout.empty(count)
    steps = list(copied.fill(schedule, 3, 0, inputs, targets))
    wanted, wanted_targets = alone.layout.empty(count)
    alone.skip_always(TRAIN, [copied.length])  # there is no such sample: nothing is replaced, but each is looked at
    alone.skip_always(HELD_OUT, [copied.held_out])
    assert list(alone.fill(schedule, 3, 0, wanted, wanted_targets)) == list(range(1, count + 1))
    assert steps[-1] == count and len(steps) < count / 3 and steps == sorted(set(steps))
    assert np.array_equal(inputs, wanted) and np.array_equal(targets, wanted_targets)


def test_a_sample_of_arrays_that_somebody_found_corrupt_is_replaced(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.arange(40, dtype=np.float32).reshape(10, 4), targets=np.arange(10))
    dataset = Dataset(DatasetSpec("arrays", SourceSpec("numpy", {"path": str(tmp_path / "a.npz")}), on_corrupt="skip"))
    inputs, targets = dataset.layout.empty(10)
    dataset.skip_always(TRAIN, [7])
    assert [*dataset.fill(LaneSchedule(10), 0, 0, inputs, targets)][-1] == 10
    assert 7 not in targets and np.array_equal(inputs[:, 0], 4 * targets)


def test_lanes_take_turns(dataset: Dataset) -> None:
    ring = make_ring(dataset, lanes=2)
    preprocessor = Preprocessor(ring, 0, {dataset.name: dataset})
    schedule = LaneSchedule(dataset.length)
    readers = [start(ring, lane_spec(dataset, schedule, lane), preprocessor) for lane in (0, 1)]
    for _ in range(6):
        assert preprocessor.step()
    assert preprocessor.statistics.samples_of_lane == {0: 3 * SLOT, 1: 3 * SLOT}
    while preprocessor.step():
        pass
    made = preprocessor.statistics
    assert made.samples_of_lane == {0: 64, 1: 64} and made.samples == 128
    assert made.samples_of_data == made.prepared == {dataset.name: 128}, "nothing is kept"
    readers[1].wait(SLOT, timeout=1)
    readers[1].release(SLOT)
    preprocessor.wait(timeout=3600)  # the release rang; else the test's own limit ends it
    assert preprocessor.step() and not preprocessor.step()
    assert preprocessor.statistics.samples_of_lane == {0: 64, 1: 72}
    readers[0].leave()
    assert preprocessor.is_deserted(0) and not preprocessor.is_deserted(1)


@pytest.mark.parametrize("writers", [1, 2])
def test_samples_are_made_ahead_of_the_foremost_reader_alone(dataset: Dataset, writers: int) -> None:
    """The lane keeps all 64 for the other one."""
    ring = make_ring(dataset, writers=writers)
    team = [Preprocessor(ring, index, {dataset.name: dataset}) for index in range(writers)]
    spec = replace(lane_spec(dataset, LaneSchedule(dataset.length)), readers={0: (0, 1)}, ahead=4 * SLOT)
    foremost = start(ring, spec, *team)
    last = ring.lanes[0].reader(1, spec.layout, 1)

    def ready_for(reader: LaneReader) -> int:
        while sum(preprocessor.step() for preprocessor in team):
            pass
        while reader.available - reader.released < reader.certain:
            if not reader.wait(reader.available + SLOT, timeout=5, stopped=lambda: True):
                break
        return reader.available

    assert ready_for(foremost) == 4 * SLOT
    foremost.release(2 * SLOT)
    assert ready_for(foremost) == 6 * SLOT
    foremost.release(6 * SLOT)
    assert ready_for(foremost) == 8 * SLOT, "the lane is full"
    assert ready_for(last) == 4 * SLOT
    last.release(4 * SLOT)
    assert ready_for(last) == 8 * SLOT
    last.release(8 * SLOT)
    assert ready_for(last) == 12 * SLOT, "it has come to the front"
    foremost.leave()
    last.release(10 * SLOT)
    assert ready_for(last) == 14 * SLOT
    last.leave()
    for preprocessor in team:
        close_all(preprocessor, [0], 5)


def test_lanes_are_opened_again_in_order(dataset: Dataset) -> None:
    """The opening and closing of later generations may be asked for at once; none of it blocks."""
    ring = make_ring(dataset)
    preprocessor = Preprocessor(ring, 0, {dataset.name: dataset})
    specs = [
        lane_spec(dataset, LaneSchedule(dataset.length), 0, generation, seed=generation) for generation in (1, 2, 4)
    ]
    preprocessor.open_lane(specs[0])
    with pytest.raises(LaneError, match="still fills lane 0; close it first"):
        preprocessor.open_lane(specs[1])
    preprocessor.close_lane(0)
    preprocessor.open_lane(specs[1])
    preprocessor.close_lane(0)
    preprocessor.open_lane(specs[2])
    assert not preprocessor.step() and not preprocessor.is_closed(0)
    for spec in specs[:2]:
        ring.lanes[0].open(spec.layout, (), spec.generation)
        assert not preprocessor.step()  # attaches and closes
    reader = start(ring, specs[2])
    inputs, _ = run(reader, 20, preprocessor)
    wanted, targets = dataset.layout.empty(20)
    assert list(dataset.fill(specs[2].schedule, 4, 0, wanted, targets)) == list(range(1, 21))
    assert np.array_equal(inputs, wanted)
    close_all(preprocessor, [0], 5)
    assert preprocessor.is_closed(0) and not ring.lanes[0].is_idle
    reader.leave()
    assert ring.lanes[0].is_idle


def test_an_opening_that_never_comes_is_an_error(dataset: Dataset) -> None:
    preprocessor = Preprocessor(make_ring(dataset), 0, {dataset.name: dataset}, patience=0.01)
    preprocessor.open_lane(lane_spec(dataset, LaneSchedule(dataset.length)))
    with pytest.raises(RingTimeout, match="lane 0 was not opened with generation 1"):
        while True:
            preprocessor.step()


def test_what_is_not_known_is_refused(dataset: Dataset) -> None:
    preprocessor = Preprocessor(make_ring(dataset), 0, {dataset.name: dataset})
    spec = lane_spec(dataset, LaneSchedule(dataset.length))
    other = LaneSpec(0, 1, StreamKey("digit", 0, 0), spec.schedule, spec.layout, {0: (0,)})
    with pytest.raises(LaneError, match="wants 'digit'"):
        preprocessor.open_lane(other)
    assert preprocessor.is_closed(0)
    with pytest.raises(ValueError, match="preprocessor 1: this ring is for 1"):
        Preprocessor(make_ring(dataset), 1, {})


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "own_samples.py").write_text(
        """
import random
import numpy as np

class Noisy:
    def __len__(self):
        return 40
    def __getitem__(self, index):
        if index == 13:
            raise OSError("bad block")
        return np.array([random.random(), np.random.rand()], np.float32), float(index)

def ragged(image, rng):
    return image
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_samples"
    sys.modules.pop("own_samples", None)


def test_a_sample_that_raises_is_named(module: str) -> None:
    dataset = Dataset(DatasetSpec("noise", SourceSpec(f"{module}:Noisy")))
    ring = make_ring(dataset)
    preprocessor = Preprocessor(ring, 0, {"noise": dataset})
    start(ring, lane_spec(dataset, LaneSchedule(40, first_epoch=2)), preprocessor)
    wanted = r"data set 'noise', train sample 13, epoch 2: OSError: bad block"
    with pytest.raises(SampleError, match=wanted) as caught:
        for _ in range(5):
            preprocessor.step()
    assert (caught.value.data, caught.value.sample, caught.value.epoch) == ("noise", 13, 2)
    assert isinstance(caught.value.__cause__, OSError)
    preprocessor.close_lane(0)
    assert preprocessor.is_closed(0) and not preprocessor.step()


def test_own_code_draws_from_the_sample_alone(module: str) -> None:
    """A data set that draws from Python's and NumPy's process-wide generators gives the same sample to everybody."""
    dataset = Dataset(DatasetSpec("noise", SourceSpec(f"{module}:Noisy")))

    def made(sample: int, epoch: int) -> bytes:
        inputs, targets = dataset.layout.empty(1)
        dataset.make(TRAIN, 1, epoch, sample, inputs[0], targets)
        assert targets.dtype == np.float64 and targets[0] == sample
        return inputs.tobytes()

    first = made(3, 0)
    assert made(4, 0) != first and made(3, 1) != first and made(3, 0) == first


def test_specs_travel_as_json(dataset: Dataset, data_values: dict[str, Any]) -> None:
    spec, travels = lane_spec(dataset, LaneSchedule(dataset.length, 2, 3, 4, 5, 6)), TypeAdapter(LaneSpec)
    assert travels.validate_json(travels.dump_json(spec)) == spec
    values = DatasetSpec.from_json(data_values)
    assert DatasetSpec.from_json(json.loads(json.dumps(values.to_json()))) == values
    assert str(spec.stream) == "digits/seed 3/epoch 4"
    with pytest.raises(DataSpecError, match="'transform': a data set has no such key; did you mean 'transforms'"):
        DatasetSpec.from_json(data_values | {"transform": []})
    with pytest.raises(DataSpecError, match="a source needs the key 'source'"):
        SourceSpec.from_json({"arguments": {}})


def test_both_parts_look_alike(data_values: dict[str, Any]) -> None:
    with pytest.raises(TransformError, match="let both transforms give the same shape"):
        Dataset(DatasetSpec.from_json(data_values | {"held_out_transforms": []}))
    alone = Dataset(DatasetSpec.from_json(data_values | {"held_out": None}))
    assert alone.held_out == 0 and alone.layout == SampleLayout((8, 8, 1), "uint8")


def test_throughput_counts_what_is_made_after_the_first_sample(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, make = [], Dataset.make

    def noted(*given: Any) -> None:
        began.append(time.monotonic())
        make(*given)

    monkeypatch.setattr(Dataset, "make", noted)
    rate = throughput(dataset, seconds=0.05, samples=SLOT)
    measured = (len(began) - 1) / rate
    assert max(0.05, began[-1] - began[1]) <= measured * (1 + 1e-9)
    assert measured <= time.monotonic() - began[0]
