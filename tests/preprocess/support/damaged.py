"""Data sets of numbered samples, some of which cannot be made; written as a module, as a user's own would be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np

from preprocess import Dataset, DatasetSpec, SourceSpec
from preprocess.samples.errors import SkippedSample
from preprocess.samples.order import HELD_OUT, TRAIN

TRAINING, HELD_BACK = 40, 12

_MODULE = '''
import numpy as np

BROKEN = {}  # (train, sample) -> what is wrong with it


def damage(train, sample):
    return BROKEN.get((train, sample))


class Numbered:
    """Sample k is k everywhere, and its target is k."""

    def __init__(self, train=True, length=None):
        self.train, self.length = train, length or (40 if train else 12)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        wrong = damage(self.train, index)
        shape, dtype, target = (4, 3), np.float32, index
        if wrong == "raise":
            raise OSError(f"sample {index} is torn")
        if wrong == "shape":
            shape = (9, 3)
        if wrong == "dtype":
            dtype = np.float64
        if wrong == "target":
            target = [index, index]
        return np.full(shape, index, dtype), target


def refuse(image, rng):
    """Noise, but a KeyError for the images so damaged."""
    if damage(True, int(image[0, 0])) == "transform":
        raise KeyError("colour")
    return image + np.float32(rng.random() / 4)


def refuse_sometimes(image, rng):
    """A KeyError for one draw in four."""
    if rng.random() > 0.75:
        raise KeyError("colour")
    return image


def reshape(image, rng):
    return image[:2] if damage(True, int(image[0, 0])) == "transform" else image


def retype(image, rng):
    return image.astype(np.float64) if damage(True, int(image[0, 0])) == "transform" else image
'''


@contextmanager
def damaged_module(folder: Path) -> Iterator[ModuleType]:
    """The module `own_damaged`, whose BROKEN says what is wrong; forgotten at the end."""
    (folder / "own_damaged.py").write_text(_MODULE)
    sys.path.insert(0, str(folder))
    try:
        import own_damaged  # type: ignore[import-not-found]

        yield own_damaged
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("own_damaged", None)


def numbered(*transforms: str, held_out: bool = True, length: int | None = None, **keys: object) -> DatasetSpec:
    """The data set of numbered samples."""

    def source(train: bool) -> SourceSpec:
        return SourceSpec("own_damaged:Numbered", {"train": train, "length": length if train else None})

    steps = tuple(f"own_damaged:{name}" for name in transforms)
    values = DatasetSpec("numbers", source(True), source(False) if held_out else None, steps, steps).to_json()
    return DatasetSpec.from_json(values | keys)


def skipping(*transforms: str, **keys: object) -> tuple[Dataset, list[SkippedSample]]:
    """The same with on_corrupt: skip, and the list that the skipped samples come into."""
    skipped: list[SkippedSample] = []
    return Dataset(numbered(*transforms, on_corrupt="skip", **keys), skipped.append), skipped  # type: ignore[arg-type]


def made(dataset: Dataset, kind: str, seed: int, epoch: int, samples: object = None) -> tuple[np.ndarray, np.ndarray]:
    """The samples of an epoch by number, (inputs, targets)."""
    numbers = range({TRAIN: dataset.length, HELD_OUT: dataset.held_out}[kind]) if samples is None else samples
    numbers = list(numbers)  # type: ignore[call-overload]
    inputs, targets = dataset.layout.empty(len(numbers))
    for place, sample in enumerate(numbers):
        dataset.make(kind, seed, epoch, sample, inputs[place], targets[place : place + 1])
    return inputs, targets
