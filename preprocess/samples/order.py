"""The order of an epoch, and the randomness of one sample: pure functions of named seeds."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocess.samples.block_order import BlockOrder

#: The two kinds of samples; each is a named seed path of its own.
TRAIN = "train"
HELD_OUT = "held_out"

#: By kind, the named seed path on which what stands in for a corrupt sample is drawn.
SUBSTITUTE = {kind: f"substitute/{kind}" for kind in (TRAIN, HELD_OUT)}

_WORD = 2**64


def epoch_order(length: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Return the shuffled indices of one epoch, (length,).

    It is the order of torch's DistributedSampler with shuffle: a permutation drawn from a torch generator
    seeded with seed + epoch, before it is padded and split over the ranks.
    """
    import torch  # only those who need an order pay for the import

    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    order: npt.NDArray[np.int64] = torch.randperm(length, generator=generator).numpy()
    return order


def drawn_order(weights: npt.NDArray[np.float64], seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Return the indices of one epoch that are drawn by weights, as many as there are, (length,).

    It is the draw of torch's WeightedRandomSampler with a generator seeded with seed + epoch.
    """
    import torch

    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    drawn = torch.multinomial(torch.from_numpy(weights), len(weights), True, generator=generator)
    order: npt.NDArray[np.int64] = drawn.numpy()
    return order


def order_of(length: int, seed: int, epoch: int, blocks: BlockOrder | None) -> npt.NDArray[np.int64]:
    """Return the order of one epoch, (length,): by blocks, or else see `epoch_order`."""
    return epoch_order(length, seed, epoch) if blocks is None else blocks.of(seed, epoch)


class EpochOrders:
    """The orders of a data set's epochs: the latest ones are kept.

    Args:
        length: n, training samples.
        kept: orders that are kept, of 4 bytes a sample.
        blocks: the order by blocks; None: samples are shuffled with all others.
        weights: by which samples are drawn, some of them several times in an epoch, (n,); None: each comes once.
    """

    def __init__(
        self,
        length: int,
        kept: int = 24,
        blocks: BlockOrder | None = None,
        weights: npt.NDArray[np.float64] | None = None,
    ) -> None:
        self.length, self.blocks, self.weights, self._kept = length, blocks, weights, kept
        self._dtype = np.int32 if length < 2**31 else np.int64
        self._orders: OrderedDict[tuple[int, int], npt.NDArray[Any]] = OrderedDict()

    def of(self, seed: int, epoch: int) -> npt.NDArray[Any]:
        """The order of an epoch, see `order_of` and `drawn_order`, (length,)."""
        key = (seed, epoch)
        if key not in self._orders:
            order = (
                order_of(self.length, seed, epoch, self.blocks)
                if self.weights is None
                else drawn_order(self.weights, seed, epoch)
            )
            self._orders[key] = order.astype(self._dtype)
            if len(self._orders) > self._kept:
                self._orders.popitem(last=False)
        self._orders.move_to_end(key)
        return self._orders[key]


class SampleGenerator:
    """Gives the generator of one sample, a pure function of (path, seed, epoch, sample).

    One Philox bit generator is reused by assigning its state, so the result is valid until the next call.
    The key is (seed, name of the path), the counter (0, 0, epoch, sample): streams of different samples never meet.
    """

    def __init__(self) -> None:
        self._philox = np.random.Philox(0)
        self._generator = np.random.Generator(self._philox)
        self._state: Any = self._philox.state
        self._key, self._counter = self._state["state"]["key"], self._state["state"]["counter"]
        self._counter[:] = 0
        self._keys = {path: _word(path) for path in (TRAIN, HELD_OUT, *SUBSTITUTE.values())}

    def __call__(self, seed: int, epoch: int, sample: int, path: str = TRAIN) -> np.random.Generator:
        """Return the generator at its start; path: `TRAIN`, `HELD_OUT` or one of `SUBSTITUTE`."""
        key, counter = self._key, self._counter
        key[0], key[1] = seed % _WORD, self._keys[path]
        counter[2], counter[3] = epoch, sample
        self._philox.state = self._state
        return self._generator


def seed_global_generators(generator: np.random.Generator) -> None:
    """Seed the generators of Python, NumPy and torch (CPU) for user code that draws from them.

    They are process-wide: another thread of this process that draws from them would see these seeds. Their states are
    not put back, which would take ten times as long.
    """
    import torch  # also before the user's code is the first to do so, which would then draw from a fresh generator

    word = int(generator.integers(2**32))
    random.seed(word)
    np.random.seed(word)
    torch.default_generator.manual_seed(word)


@contextmanager
def kept_global_generators() -> Iterator[None]:
    """Put the generators of Python, NumPy and torch (CPU) back as they were, where the process is the user's."""
    import torch

    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)


@contextmanager
def global_generators_seeded(seed: int) -> Iterator[None]:
    """Let somebody's code draw from them as a script does after `torch.manual_seed(seed)`; then put them back."""
    import torch

    with kept_global_generators():
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        yield


def _word(name: str) -> int:
    return int.from_bytes(blake2b(f"preprocess/{name}".encode(), digest_size=8).digest(), "little")
