"""Synthetic samples for the tests of equality, each set drawn from a seed of its own name."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from tests.trainers.support.equality_models import CLASSES

SAMPLES = 37  # none of 2, 3, 4 and 8 workers divides it: orders are padded, last batches are partial


def generator(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


class Columns(Dataset[Any]):
    """Samples (input, target) out of nested tensors whose first axis counts them."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.columns = (inputs, targets)

    def __len__(self) -> int:
        first = self.columns[0]
        return len(next(iter(first.values())) if isinstance(first, dict) else first)

    def __getitem__(self, index: int) -> Any:
        return self._take(self.columns, index)

    def _take(self, value: Any, index: int) -> Any:
        if isinstance(value, dict):
            return {key: self._take(item, index) for key, item in value.items()}
        if isinstance(value, tuple):
            return tuple(self._take(item, index) for item in value)
        return value[index]


class Augmented(Columns):
    """Draws from each of the global generators whenever a sample is read, as many a script's data set does."""

    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__(index)
        if random.random() < 0.5:
            image = image.flip(-1)
        shift = int(np.random.randint(-2, 3))
        return image.roll(shift, -1) + 0.1 * torch.randn(image.shape), target


def images(
    name: str, size: int = 16, channels: int = 3, kind: type[Columns] = Columns, count: int = SAMPLES
) -> Columns:
    draw = generator(f"images/{name}")
    inputs = torch.randn(count, channels, size, size, generator=draw)
    return kind(inputs, torch.randint(0, 10, (count,), generator=draw))


def pixel_values(name: str, size: int) -> Columns:
    inputs, targets = images(name, size).columns
    return Columns({"pixel_values": inputs}, targets)


def scenes(name: str) -> Columns:
    draw = generator(f"scenes/{name}")
    boxes = torch.rand(SAMPLES, 3, 4, generator=draw)
    labels = torch.randint(0, CLASSES, (SAMPLES, 3), generator=draw)
    present = torch.rand(SAMPLES, 3, generator=draw) < 0.7
    return Columns(torch.randn(SAMPLES, 3, 32, 32, generator=draw), (boxes, labels, present))


def ratings(name: str) -> Columns:
    draw = generator(f"ratings/{name}")
    users, items = (torch.randint(0, count, (SAMPLES,), generator=draw) for count in (50, 80))
    return Columns({"user": users, "item": items}, torch.randint(0, 2, (SAMPLES,), generator=draw).float())


def sentences(name: str, each_token: bool = False) -> Columns:
    """Token ids with an attention mask of ragged lengths, and a label for each sentence or each token."""
    draw = generator(f"sentences/{name}")
    tokens = torch.randint(1, 120, (SAMPLES, 12), generator=draw)
    lengths = torch.randint(4, 13, (SAMPLES, 1), generator=draw)
    mask = (torch.arange(12) < lengths).long()
    shape = (SAMPLES, 12) if each_token else (SAMPLES,)
    labels = torch.randint(0, 2, shape, generator=draw)
    return Columns({"input_ids": tokens * mask, "attention_mask": mask}, labels)


def texts(name: str) -> Columns:
    tokens = torch.randint(0, 60, (SAMPLES, 11), generator=generator(f"texts/{name}"))
    return Columns(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
