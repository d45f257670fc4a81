"""Random draws of traces: every quantity from a seed path of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats

Mix = Mapping[tuple[str, int], float]
"""(model, global batch size) -> weight."""

_WORD = 2**64


class MeasuredRates(Protocol):
    """The part of a table of rates that draws need: `fleet.simulator.machines.rate_tables.RateTable`."""

    @property
    def models(self) -> tuple[str, ...]: ...

    def batches(self, model: str) -> tuple[int, ...]: ...

    def rates(self, model: str, batch: int, limit: int) -> Floats: ...

    def peak(self, model: str, batch: int) -> int: ...


def generator(seed: int, name: str) -> np.random.Generator:
    """The generator of the path (seed, name): Philox, keyed by both."""
    word = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
    return np.random.Generator(np.random.Philox(key=np.array([seed % _WORD, word], dtype=np.uint64)))


def uniform(seed: int, name: str, count: int) -> Floats:
    """Numbers in [0, 1), float64 of shape (count,); fewer are the first of more."""
    return generator(seed, name).random(count)


def chosen(uniform: Floats, weights: Sequence[float]) -> Counts:
    """For each number in [0, 1) the position of a weight, as often as its share says."""
    shares = np.cumsum(weights) / math.fsum(weights)
    last = int(np.flatnonzero(np.asarray(weights) > 0)[-1])
    return np.minimum(np.searchsorted(shares, uniform, side="right"), last).astype(np.int64)


def models_of(mix: Mix | None, rates: MeasuredRates, seed: int, count: int) -> tuple[list[tuple[str, int]], Counts]:
    """The models and batch sizes to choose from, and for each of `count` jobs the position of its own.

    Without a mix all that the table holds, alike.

    Raises:
        ValueError: no weight is above 0, or one is below.
    """
    if mix is None:
        mix = {(model, batch): 1.0 for model in rates.models for batch in rates.batches(model)}
    if not (min(mix.values(), default=0) >= 0 and 0 < sum(mix.values()) < math.inf):
        raise ValueError(f"the weights are {dict(mix)}; they must be 0 or more each, and not all 0")
    return list(mix), chosen(uniform(seed, "model", count), list(mix.values()))
