"""A network's part of the samples, and its order of them: torch's own sampler over a Subset deals the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler, Subset

from preprocess import Bag, Fold, Part
from preprocess.samples.order import epoch_order
from preprocess.samples.part import MemberOrder
from preprocess.samples.stream import LaneSchedule
from trainers import BatchPlan

seeds = st.integers(0, 2**31 - 1)


@st.composite
def lengths_and_parts(draw: st.DrawFn) -> tuple[int, Part]:
    """A data set's length, and a part that it can have."""
    length = draw(st.integers(1, 60))
    subset: int | tuple[int, ...] | None = draw(
        st.none()
        | st.integers(1, length)
        | st.sets(st.integers(0, length - 1), min_size=1).map(lambda chosen: tuple(sorted(chosen)))
    )
    samples = length if subset is None else subset if isinstance(subset, int) else len(subset)
    fold = None
    if samples >= 2 and draw(st.booleans()):
        count = draw(st.integers(2, samples))
        fold = Fold(draw(st.integers(0, count - 1)), count, draw(seeds))
    bag = draw(st.none() | st.builds(Bag, st.floats(0.01, 1.0), seeds))
    return length, Part(subset, fold, bag)


@settings(deadline=None)
@given(lengths_and_parts())
def test_a_part_lies_in_its_subset_and_apart_from_its_fold(drawn: tuple[int, Part]) -> None:
    length, part = drawn
    train, held_out = part.train(length).tolist(), part.held_out(length).tolist()
    chosen = (
        range(length) if part.subset is None else range(part.subset) if isinstance(part.subset, int) else part.subset
    )
    assert train == sorted(set(train)) and held_out == sorted(set(held_out))
    assert set(train) | set(held_out) <= set(chosen) and not set(train) & set(held_out)
    assert (len(train), len(held_out)) == (part.train_count(length), part.held_out_count(length))
    if part.bag is None:
        assert set(train) | set(held_out) == set(chosen)
    else:
        rest = len(chosen) - len(held_out)
        assert len(train) == max(1, round(part.bag.fraction * rest))


@settings(deadline=None)
@given(st.integers(2, 60), st.data())
def test_each_sample_is_held_out_from_one_fold(length: int, data: st.DataObject) -> None:
    count, seed = data.draw(st.integers(2, length)), data.draw(seeds)
    folds = [Part(fold=Fold(index, count, seed)).held_out(length) for index in range(count)]
    assert sorted(np.concatenate(folds).tolist()) == list(range(length))
    assert max(map(len, folds)) - min(map(len, folds)) <= 1


@settings(deadline=None)
@given(st.integers(1, 60), st.floats(0.01, 1.0), st.floats(0.01, 1.0), seeds)
def test_a_larger_bag_of_one_seed_has_all_of_a_smaller_one(length: int, one: float, other: float, seed: int) -> None:
    small, large = (Part(bag=Bag(size, seed)).train(length).tolist() for size in sorted((one, other)))
    assert set(small) <= set(large)


def test_seeds_draw_other_parts() -> None:
    assert Part(bag=Bag(0.5, 1)).train(100).tolist() != Part(bag=Bag(0.5, 2)).train(100).tolist()
    assert Part(fold=Fold(0, 2, 1)).held_out(100).tolist() != Part(fold=Fold(0, 2, 2)).held_out(100).tolist()
    assert Part(fold=Fold(0, 2, 1)).train(100).tolist() != Part(bag=Bag(0.5, 1)).train(100).tolist()


def test_what_is_drawn_stays_what_it_is() -> None:
    """Runs go on after an update of fleet, of NumPy too."""
    assert Part(fold=Fold(1, 3, 7)).held_out(10).tolist() == [0, 6, 7]
    assert Part(bag=Bag(0.4, 7)).train(10).tolist() == [0, 4, 6, 7]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Part(11), "all of 0 to 9"),
        (Part((3, 10)), "all of 0 to 9"),
        (Part((3, 3)), "none twice"),
        (Part((-1, 3)), "all of 0 to 9"),
        (Part(4, Fold(0, 5, 0)), "5 folds of 4 samples"),
    ],
)
def test_a_part_that_cannot_be_is_refused(part: Part, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        part.train(10)


def test_folds_and_bags_that_cannot_be_are_refused() -> None:
    for make in (lambda: Fold(2, 2, 0), lambda: Fold(0, 1, 0), lambda: Bag(0.0, 0), lambda: Bag(1.5, 0)):
        with pytest.raises(ValueError, match="at least 2 folds|above 0"):
            make()
    for own in ([], [1, 1]):
        with pytest.raises(ValueError, match="at least one, and none twice"):
            MemberOrder(np.array(own, np.int64), 3, 0)


@settings(deadline=None)
@given(lengths_and_parts(), seeds, st.integers(0, 3), st.integers(1, 6), st.integers(1, 5))
def test_torch_s_sampler_over_a_subset_deals_the_same(
    drawn: tuple[int, Part], seed: int, epoch: int, workers: int, batch: int
) -> None:
    length, part = drawn
    train = part.train(length)
    member = MemberOrder(train, length, seed)
    own = set(train.tolist())
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed + epoch)).tolist()
    mine = [sample for sample in order if sample in own]
    assert member.of_epoch(epoch).tolist() == mine
    plan = BatchPlan(member.samples, workers, batch)
    places = member.padded_places(epoch, plan.padded)
    stream = epoch_order(length, seed, epoch)
    for rank in range(workers):
        subset: Subset[int] = Subset(range(length), mine)  # type: ignore[arg-type]
        sampler: DistributedSampler[int] = DistributedSampler(subset, workers, rank, shuffle=False)
        theirs = [found.tolist() for found in DataLoader(subset, batch, sampler=sampler)]
        steps = (plan.step_range(step) for step in range(plan.steps_per_epoch))
        numbers = [range(step.start + rank, step.stop, workers) for step in steps]
        assert [stream[places[list(each)] % length].tolist() for each in numbers] == theirs


@settings(deadline=None)
@given(lengths_and_parts(), seeds, st.integers(0, 3), st.integers(1, 6))
def test_a_tail_reaches_as_far_as_the_padding(drawn: tuple[int, Part], seed: int, epoch: int, workers: int) -> None:
    length, part = drawn
    member = MemberOrder(part.train(length), length, seed)
    padded = BatchPlan(member.samples, workers, 1).padded
    places, tail = member.padded_places(epoch, padded).tolist(), member.tail(epoch, padded)
    assert places == sorted(places) and len(set(places)) == len(places)
    assert all(place < LaneSchedule(length, tail).places for place in places)
    assert tail == 0 if padded == member.samples else places[-1] == length + tail - 1
