"""Samples of a person's own data set that are read together are those that are made one by one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from preprocess import Dataset, DatasetSpec, SourceSpec
from preprocess.samples.order import TRAIN
from preprocess.samples.stream import LaneSchedule

COUNT = 300


class Plain:
    """Pictures that lie in memory."""

    def __init__(self) -> None:
        self.pictures = np.random.default_rng(0).integers(0, 256, (COUNT, 5, 4), np.uint8)
        self.read: list[int] = []

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.read.append(index)
        return self.pictures[index], index % 7


class Tensors(Plain):
    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return torch.from_numpy(self.pictures[index]).float()[None], torch.tensor([index, 0.5])


class Draws(Plain):
    """Draws from a generator for each sample, or for a few late ones."""

    generator, every = "torch", 1

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, target = super().__getitem__(index)
        if index % self.every == self.every - 1:
            drawn = {
                "torch": lambda: int(torch.randint(256, ())),
                "numpy": lambda: int(np.random.randint(256)),
                "python": lambda: random.randrange(256),
                "seed": lambda: torch.initial_seed() % 256,
            }
            image = image + np.uint8(drawn[self.generator]())
        return image, target


def together(data: Any, epochs: int = 4, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    dataset = Dataset(DatasetSpec("own", SourceSpec(data)))
    inputs, targets = dataset.layout.empty(epochs * COUNT)
    for start in range(0, epochs * COUNT, 100):
        rows = slice(start, start + 100)
        *_, made = dataset.fill(LaneSchedule(COUNT), seed, start, inputs[rows], targets[rows])
        assert made == 100
    return inputs, targets


def alone(data: Any, epochs: int = 4, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    dataset = Dataset(DatasetSpec("own", SourceSpec(data)))
    inputs, targets = dataset.layout.empty(epochs * COUNT)
    for row in range(epochs * COUNT):
        epoch = row // COUNT
        sample = int(dataset.orders.of(seed, epoch)[row % COUNT])
        dataset.make(TRAIN, seed, epoch, sample, inputs[row], targets[row : row + 1])
    return inputs, targets


@pytest.mark.parametrize("kind", [Plain, Tensors])
def test_what_draws_nothing_is_read_together_with_the_same_bytes(kind: type[Plain]) -> None:
    for found, wanted in zip(together(kind()), alone(kind())):
        assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


def test_samples_are_read_together_once_they_were_alike_under_two_seeds() -> None:
    data = Plain()
    dataset = Dataset(DatasetSpec("own", SourceSpec(data)))
    inputs, targets = dataset.layout.empty(COUNT)

    def epoch(number: int) -> int:
        return len(list(dataset.fill(LaneSchedule(COUNT), 0, number * COUNT, inputs, targets)))

    data.read.clear()
    assert epoch(0) == COUNT and epoch(0) == COUNT and not dataset.copies_many, "both times under the same seeds"
    assert epoch(1) <= COUNT and dataset.copies_many
    assert epoch(2) == 1
    assert np.bincount(data.read).tolist() == [4] * COUNT, "no sample is read but to be made"
    random.seed(5)
    before = random.getstate()
    assert epoch(3) == 1 and random.getstate() == before


@pytest.mark.parametrize("generator", ["torch", "numpy", "python", "seed"])
def test_what_draws_is_seeded_for_each_sample(generator: str) -> None:
    data = Draws()
    data.generator = generator
    for found, wanted in zip(together(data), alone(data)):
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("generator", ["torch", "numpy", "python"])
def test_what_draws_only_now_and_then_is_seeded_too(generator: str) -> None:
    data = Draws()
    data.generator, data.every = generator, 97  # few of those that are watched draw, or none
    for found, wanted in zip(together(data), alone(data)):
        assert found.tobytes() == wanted.tobytes()


def test_a_sample_that_raises_is_told_of_though_others_are_read_with_it() -> None:
    class Raises(Plain):
        def __getitem__(self, index: int) -> tuple[Any, Any]:
            if index == 250:
                raise OSError("torn")
            return super().__getitem__(index)

    skipped: list[int] = []
    spec = DatasetSpec("own", SourceSpec(Raises()), on_corrupt="skip")
    dataset = Dataset(spec, lambda sample: skipped.append(sample.sample))
    inputs, targets = dataset.layout.empty(COUNT)
    for epoch in range(3):
        assert list(dataset.fill(LaneSchedule(COUNT), 0, epoch * COUNT, inputs, targets))[-1] == COUNT
    assert skipped == [250] and dataset.copies_many


def test_a_sample_of_another_shape_is_told_of() -> None:
    class Torn(Plain):
        torn = False

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            image, target = super().__getitem__(index)
            longer = np.concatenate([image, image[:1]])
            return {280: image[:4], 281: longer}.get(index if self.torn else 0, image), target

    data = Torn()
    dataset = Dataset(DatasetSpec("own", SourceSpec(data)))
    inputs, targets = dataset.layout.empty(COUNT)
    for epoch in range(2):
        list(dataset.fill(LaneSchedule(COUNT), 0, epoch * COUNT, inputs, targets))
    assert dataset.copies_many
    data.torn = True
    with pytest.raises(RuntimeError, match="28[01], epoch 0: ValueError: the sample is"):
        list(dataset.fill(LaneSchedule(COUNT), 0, 0, inputs, targets))
