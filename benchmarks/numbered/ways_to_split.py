"""Twelve ways in which people divide their samples into those to train on and those to hold out.

Each is a task whose data set is constructed anew for either part. Samples are their own numbers, and a loss notes those
that it sees in a file of its class in the current folder.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Subset, SubsetRandomSampler, random_split

SAMPLES, TRAINED = 200, 160


class Numbers:
    """Samples that are their own numbers."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.tensor([float(index)]), 0


def part_of(order: Sequence[int], train: bool) -> Subset[Any]:
    """The first samples of an order to train on, the others held out."""
    chosen = [int(number) for number in order]
    return Subset(Numbers(), chosen[:TRAINED] if train else chosen[TRAINED:])  # type: ignore[arg-type]


def note(kind: str, is_training: bool, inputs: Tensor) -> None:
    """Write down which samples were seen."""
    with open(f"{kind}.{'train' if is_training else 'held'}", "a") as file:
        file.write(" ".join(str(int(number)) for number in inputs[:, 0].tolist()) + "\n")


class Split:
    """A task; the others say how samples are divided."""

    def model(self) -> nn.Module:
        return nn.Linear(1, 2)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=1e-4)

    def dataset(self, train: bool) -> Any:
        return part_of(self.order(), train)

    def order(self) -> Sequence[int]:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        note(type(self).__name__, model.training, batch[0])
        loss: Tensor = nn.functional.cross_entropy(model(batch[0]), batch[1])
        return loss


class RandomSplit(Split):
    """torch's random_split without a generator."""

    def dataset(self, train: bool) -> Any:
        parts: list[Subset[Any]] = random_split(Numbers(), [TRAINED, SAMPLES - TRAINED])  # type: ignore[arg-type]
        return parts[0 if train else 1]


class TrainTestSplit(Split):
    """scikit-learn's train_test_split without a random_state, or where it is not installed what it does."""

    def dataset(self, train: bool) -> Any:
        try:
            from sklearn.model_selection import train_test_split
        except ImportError:
            return part_of(np.random.mtrand._rand.permutation(SAMPLES).tolist(), train)
        parts = train_test_split(list(range(SAMPLES)), train_size=TRAINED)
        return part_of([*parts[0], *parts[1]], train)


class ShuffledFiles(Split):
    """A list of files, shuffled by Python."""

    def order(self) -> Sequence[int]:
        files = [f"{number}.jpg" for number in range(SAMPLES)]
        random.shuffle(files)
        return [int(file.partition(".")[0]) for file in files]


class NumpyPermutation(Split):
    """NumPy's permutation."""

    def order(self) -> Sequence[int]:
        return np.random.permutation(SAMPLES).tolist()  # type: ignore[no-any-return]


class TorchPermutation(Split):
    """torch's permutation, where the split comes after other draws."""

    def order(self) -> Sequence[int]:
        torch.randn(7), np.random.rand(3), random.random()
        return torch.randperm(SAMPLES).tolist()  # type: ignore[no-any-return]


class SplitWhenMade(Split):
    """A split that a task makes once, when it is made itself."""

    def __init__(self) -> None:
        self._order = torch.randperm(SAMPLES).tolist()

    def order(self) -> Sequence[int]:
        return self._order


class SamplerOrder(Split):
    """The order of a SubsetRandomSampler, taken once for each part."""

    def order(self) -> Sequence[int]:
        return list(SubsetRandomSampler(range(SAMPLES)))


class FolderOrder(Split):
    """The order in which a folder lists its files, which are not sorted."""

    def order(self) -> Sequence[int]:
        os.makedirs("folder", exist_ok=True)
        for number in range(SAMPLES):
            open(f"folder/{number}", "a").close()
        return [int(name) for name in os.listdir("folder")]


class Part:
    """A data set of a spec's section, which is told which part it is."""

    def __init__(self, train: bool = True) -> None:
        parts: list[Subset[Any]] = random_split(Numbers(), [TRAINED, SAMPLES - TRAINED])  # type: ignore[arg-type]
        self._part = parts[0 if train else 1]

    def __len__(self) -> int:
        return len(self._part)

    def __getitem__(self, index: int) -> Any:
        return self._part[index]


class Section(Split):
    """The task of a section's data set."""


class HashOrder(Split):
    """The order of a set of texts, which is another one in each process."""

    def order(self) -> Sequence[int]:
        return [int(text) for text in {str(number) for number in range(SAMPLES)}]


class Clock(Split):
    """A generator that is seeded with the time."""

    def order(self) -> Sequence[int]:
        order = list(range(SAMPLES))
        random.Random(time.time_ns()).shuffle(order)
        return order


class Entropy(Split):
    """A generator that the operating system seeds."""

    def order(self) -> Sequence[int]:
        return np.random.default_rng().permutation(SAMPLES).tolist()  # type: ignore[no-any-return]


STEADY = (
    RandomSplit, TrainTestSplit, ShuffledFiles, NumpyPermutation, TorchPermutation, SplitWhenMade, SamplerOrder,
    FolderOrder, Section,
)  # fmt: skip
"""Those that are the same in each process once the global generators are."""
REFUSED = (HashOrder, Clock, Entropy)
"""Those that nothing makes the same."""
