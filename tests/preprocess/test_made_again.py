"""A data set whose samples depend on what was made before is told of; one that draws as it should is not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from preprocess import Dataset, DatasetSpec, SourceSpec
from preprocess.making.fingerprints import unlike_samples


class Pictures:
    """Noisy pictures; `how` says where the noise is from."""

    def __init__(self, how: str) -> None:
        self.how, self.count, self.generator = how, 0, torch.Generator().manual_seed(0)
        self.own: dict[str, Any] = {
            "own NumPy": np.random.default_rng(0).normal,
            "own Python": random.Random(0).random,
            "own torch": lambda: float(torch.rand(1, generator=self.generator)),
            "global NumPy": np.random.rand,
            "global Python": random.random,
            "global torch": lambda: float(torch.rand(1)),
            **dict.fromkeys(("nothing", "torn"), lambda: 0.0),
        }

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        self.count += 1
        if self.how == "torn" and self.count > 1:  # once, when it is opened, it could be read
            raise OSError("page 0 is torn out")
        noise = self.count if self.how == "counting" else self.own[self.how]()
        return np.full((2, 3), index + noise, np.float32), index


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield


def told(how: str, **more: Any) -> list[str]:
    source = SourceSpec(Pictures(how))
    return list(unlike_samples(Dataset(DatasetSpec("pictures", source, **more)), 3))


@pytest.mark.parametrize("how", ["own NumPy", "own Python", "own torch", "counting"])
def test_samples_that_depend_on_what_was_made_before(how: str) -> None:
    (text,) = told(how)
    assert text.startswith("data pictures: training sample 0 is another one when it is made again")
    held_out = SourceSpec(Pictures(how))
    assert ["held-out" in text for text in told(how, held_out=held_out)] == [False, True]


@pytest.mark.parametrize("how", ["global NumPy", "global Python", "global torch", "nothing", "torn"])
def test_samples_that_do_not_or_cannot_be_made(how: str) -> None:
    assert told(how) == []
