"""Samples of very different lengths: token sequences, boxes of pictures, and clouds of points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Draw = Callable[[np.random.Generator], Any]


class RaggedSet:
    """A map-style data set; sample i is drawn by the seed path (i).

    Args:
        kind: "tokens": 8 to 4,096 ids of uint16; "boxes": 0 to 200 boxes of float32 with a class each; "clouds": 100 to
            20,000 points of four float32.
        count: how many samples there are.
    """

    def __init__(self, kind: str, count: int) -> None:
        self._draw, self._count = KINDS[kind], count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._draw(np.random.default_rng(index))


def _length(rng: np.random.Generator, median: float, spread: float, least: int, most: int) -> int:
    return int(np.clip(round(rng.lognormal(np.log(median), spread)), least, most))


def _tokens(rng: np.random.Generator) -> Any:
    return rng.integers(0, 50_000, _length(rng, 250, 1.0, 8, 4096), np.uint16), 0


def _boxes(rng: np.random.Generator) -> Any:
    count = _length(rng, 6, 1.2, 0, 200)
    return {"boxes": rng.random((count, 4), np.float32), "classes": rng.integers(0, 90, count)}, 0


def _cloud(rng: np.random.Generator) -> Any:
    return rng.random((_length(rng, 2000, 0.9, 100, 20_000), 4), np.float32), int(rng.integers(10))


KINDS: dict[str, Draw] = {"tokens": _tokens, "boxes": _boxes, "clouds": _cloud}
