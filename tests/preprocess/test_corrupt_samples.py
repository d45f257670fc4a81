"""What becomes of samples that cannot be made: the same for everybody who asks, and written down once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess import Dataset, DatasetSpec, DataSpecError, SourceSpec
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import RingShape, lane_bytes
from preprocess.ring.ring import Ring
from preprocess.samples.errors import CorruptLimitError, CorruptSamples, SampleError, SkippedSample
from preprocess.samples.order import HELD_OUT, TRAIN
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from tests.preprocess.support.damaged import damaged_module, made, numbered, skipping

SLOT = 8


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    with damaged_module(tmp_path) as found:
        yield found


def broken(module: ModuleType, *samples: int, wrong: str = "raise", train: bool = True) -> None:
    module.BROKEN.update({(train, sample): wrong for sample in samples})


@pytest.mark.parametrize("wrong", ["raise", "shape", "dtype", "target"])
def test_one_takes_the_place_and_the_others_stay(module: ModuleType, wrong: str) -> None:
    broken(module, 5, 17, wrong=wrong)
    dataset, skipped = skipping()
    inputs, targets = made(dataset, TRAIN, seed=1, epoch=0)
    for sample in set(range(40)) - {5, 17}:
        assert targets[sample] == sample and np.all(inputs[sample] == sample)
    assert [found.sample for found in skipped] == [5, 17]
    for found in skipped:
        assert targets[found.sample] == found.substitute and np.all(inputs[found.sample] == found.substitute)
        assert found.substitute not in (5, 17)
        assert (found.data, found.kind, found.epoch) == ("numbers", TRAIN, 0)
    reason = {"raise": "OSError: sample 5 is torn"}.get(wrong, "ValueError: the ")
    assert skipped[0].reason.startswith(reason)
    assert skipped[0].stage == ("source" if wrong == "raise" else "transform")


@pytest.mark.parametrize("transform", ["refuse", "reshape", "retype"])
def test_a_transform_that_fails_for_some_samples_is_no_end(module: ModuleType, transform: str) -> None:
    broken(module, 8, wrong="transform")
    with pytest.raises(SampleError, match="train sample 8, epoch 2: "):
        made(Dataset(numbered(transform)), TRAIN, 1, 2)
    dataset, skipped = skipping(transform)
    _, targets = made(dataset, TRAIN, 1, 2)
    assert [(found.sample, found.stage) for found in skipped] == [(8, "transform")]
    assert targets[8] == skipped[0].substitute != 8


def test_the_substitute_is_a_function_of_seed_epoch_and_sample(module: ModuleType) -> None:
    broken(module, 5, 6, 7)

    def substitutes(seed: int, epoch: int, order: tuple[int, ...] = (5, 6, 7)) -> tuple[int, ...]:
        dataset, _ = skipping()
        return tuple(int(made(dataset, TRAIN, seed, epoch, [sample])[1][0]) for sample in order)

    first = substitutes(1, 0)
    assert substitutes(1, 0, (7, 5, 6)) == (first[2], first[0], first[1])
    assert len(set(first)) > 1
    assert len({substitutes(seed, epoch) for seed in (1, 2) for epoch in (0, 1)}) == 4


def test_a_substitute_is_what_that_sample_is_itself_in_the_epoch(module: ModuleType) -> None:
    """It has the substitute's own augmentation, whoever makes it."""
    broken(module, 5, wrong="transform")
    dataset, skipped = skipping("refuse")
    inputs, _ = made(dataset, TRAIN, 3, 2)
    assert inputs[5].tobytes() == inputs[skipped[0].substitute].tobytes()


def test_held_out_samples_have_one_substitute_in_all_epochs(module: ModuleType) -> None:
    broken(module, 3, train=False)
    dataset, skipped = skipping()
    targets = [made(dataset, HELD_OUT, 1, epoch)[1] for epoch in range(4)]
    assert all(np.array_equal(targets[0], later) for later in targets[1:])
    assert targets[0][3] != 3 and [found.kind for found in skipped] == [HELD_OUT]
    assert made(dataset, TRAIN, 1, 0)[1][3] == 3


def test_substitutes_that_are_corrupt_are_passed_over(module: ModuleType) -> None:
    good = {2, 30}
    broken(module, *set(range(1, 40)) - good)
    module.BROKEN.pop((True, 0), None)  # the first is looked at when the data set is opened
    dataset, skipped = skipping()
    targets = made(dataset, TRAIN, 1, 0)[1].tolist()
    assert set(targets) == good | {0}
    assert len(skipped) == 37 and {found.sample for found in skipped} == set(range(1, 40)) - good
    assert {found.substitute for found in skipped} <= good | {0}


def test_each_sample_is_told_of_once(module: ModuleType) -> None:
    broken(module, 5)
    dataset, skipped = skipping()
    for epoch in range(3):
        made(dataset, TRAIN, 1, epoch)
        made(dataset, TRAIN, 2, epoch)
    assert [found.sample for found in skipped] == [5]


def test_code_that_fails_for_every_sample_ends_at_once(module: ModuleType) -> None:
    """The first one is good, else the data set could not be opened."""
    broken(module, *range(1, 4000))
    dataset, skipped = skipping(length=4000)
    module.BROKEN[True, 0] = "raise"
    with pytest.raises(SampleError, match=r"sample 7, epoch 0: OSError: sample 7 is torn; none of \d\d others") as told:
        made(dataset, TRAIN, 1, 0, [7])
    assert "source or the transforms" in str(told.value) and isinstance(told.value.__cause__, OSError)
    assert not skipped


def test_a_lone_sample_has_no_substitute(module: ModuleType) -> None:
    dataset, _ = skipping(held_out=False, length=1)
    broken(module, 0)
    with pytest.raises(SampleError, match="there is no other sample to take in its place"):
        made(dataset, TRAIN, 1, 0)


def test_more_than_the_limit_is_an_error_that_names_the_first(module: ModuleType) -> None:
    broken(module, 5, 6, 20, 30)
    dataset, skipped = skipping(corrupt_limit=3)
    with pytest.raises(
        CorruptLimitError, match=r"'numbers'.*the 3 of corrupt_limit.*train sample 5 .OSError: "
    ) as told:
        made(dataset, TRAIN, 1, 0, range(40))
    assert "raise corrupt_limit" in str(told.value)
    assert [found.sample for found in skipped][:3] == [5, 6, 20] and len(skipped) == 4


def test_samples_that_others_found_are_skipped_untried(module: ModuleType) -> None:
    """Mended or not, and with the substitutes that they had."""
    broken(module, 5, 6)
    before, skipped = skipping()
    wanted = made(before, TRAIN, 1, 0)[1]
    module.BROKEN.clear()
    for spec in (numbered(on_corrupt="skip"), numbered()):
        after = Dataset(spec, lambda sample: pytest.fail(f"{sample} is known"))
        after.skip_always(TRAIN, [found.sample for found in skipped])
        assert np.array_equal(made(after, TRAIN, 1, 0)[1], wanted)
        assert np.array_equal(made(after, HELD_OUT, 1, 0)[1], np.arange(12))


def test_a_transform_that_refuses_some_draws_depends_on_no_history(module: ModuleType) -> None:
    """Samples that failed in one epoch are tried again in the next: else it would matter who saw what before."""
    seen, _ = skipping("refuse_sometimes")
    for epoch in range(3):
        made(seen, TRAIN, 1, epoch)
    fresh, skipped = skipping("refuse_sometimes")
    inputs, targets = made(fresh, TRAIN, 1, 3)
    again = made(seen, TRAIN, 1, 3)
    assert skipped and {found.stage for found in skipped} == {"transform"}
    assert np.array_equal(inputs, again[0]) and np.array_equal(targets, again[1])


@settings(max_examples=25, deadline=None)
@given(
    bad=st.sets(st.integers(1, 39), max_size=20), writers=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 5), place=st.integers(0, 39), tail=st.integers(0, 3),
)  # fmt: skip
def test_lanes_are_the_same_whoever_fills_them(
    tmp_path_factory: pytest.TempPathFactory, bad: set[int], writers: int, seed: int, place: int, tail: int
) -> None:
    """Any number of preprocessors, and a start in the middle of the epoch, against one process that makes it all."""
    with damaged_module(tmp_path_factory.mktemp("lanes")) as module:
        broken(module, *bad)
        broken(module, 4, train=False)
        single, _ = skipping()
        whole = LaneSchedule(40, tail, 12)
        rest = LaneSchedule(40, tail, 12, first_place=place, last_epoch=0)
        inputs, targets = single.layout.empty(40 + tail + 12)
        for _ in single.fill(whole, seed, 0, inputs, targets):
            pass
        assert rest.end is not None
        found = read_lane(rest, seed, writers)
        assert np.array_equal(found[0], inputs[place:]) and np.array_equal(found[1], targets[place:])


def read_lane(schedule: LaneSchedule, seed: int, writers: int) -> tuple[np.ndarray, np.ndarray]:
    """All of a lane that a number of preprocessors fill, each with a data set of its own."""
    sets = [skipping()[0] for _ in range(writers)]
    layout = sets[0].layout
    ring = Ring.forked(RingShape(1, lane_bytes(layout, 96, SLOT, writers), SLOT, 1, writers))
    spec = LaneSpec(0, 1, StreamKey("numbers", seed, 0), schedule, layout, {0: (0,)})
    ring.lanes[0].open(layout, [0], 1)
    team = [Preprocessor(ring, index, {"numbers": data}) for index, data in enumerate(sets)]
    for preprocessor in team:
        preprocessor.open_lane(spec)
    reader = ring.lanes[0].reader(0, layout, 1)
    while sum(preprocessor.step() for preprocessor in team):
        pass
    assert schedule.end is not None and reader.wait(schedule.end, timeout=5)
    return reader.take(np.arange(schedule.end))


def test_policies_travel_as_json_and_are_checked() -> None:
    spec = DatasetSpec("pictures", SourceSpec("idx"), on_corrupt="skip", corrupt_limit=7)
    assert DatasetSpec.from_json(spec.to_json()) == spec
    assert DatasetSpec.from_json({"name": "pictures", "train": {"source": "idx"}}).on_corrupt == "raise"
    with pytest.raises(DataSpecError, match="'skipp': on_corrupt is raise or skip; did you mean 'skip'"):
        DatasetSpec.from_json(spec.to_json() | {"on_corrupt": "skipp"})
    for limit in (0, True, 1.5, "many"):
        with pytest.raises(DataSpecError, match="corrupt_limit is a whole number"):
            DatasetSpec.from_json(spec.to_json() | {"corrupt_limit": limit})


def test_the_limit_counts_those_that_were_told() -> None:
    samples = CorruptSamples("pictures", 2)
    samples.tell(TRAIN, [1])
    samples.add(SkippedSample("pictures", TRAIN, 1, 9, 0, "known"))
    samples.add(SkippedSample("pictures", HELD_OUT, 1, 9, 0, "another"))
    with pytest.raises(CorruptLimitError, match="held_out sample 1 .another., train sample 2 .torn."):
        samples.add(SkippedSample("pictures", TRAIN, 2, 9, 0, "torn"))


def test_long_errors_are_cut(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, skipped = skipping()
    monkeypatch.setattr(module.Numbered, "__getitem__", fail_at_length(module.Numbered.__getitem__))
    made(dataset, TRAIN, 1, 0, [5])
    assert len(skipped[0].reason) < 400 and "\n" not in skipped[0].reason


def fail_at_length(read: object) -> object:
    def fail(self: object, index: int) -> object:
        if index == 5:
            raise ValueError("a line\n" * 10_000)
        return read(self, index)  # type: ignore[operator]

    return fail
