"""The order of an epoch, the randomness of one sample, and what stands in for one: pure functions of named seeds.

An order by blocks is for data that lie in blocks, such as row groups: the samples of a block come near each other in an
epoch.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from preprocess.samples.errors import DataSpecError, spelling_advice
from preprocess.samples.layout import Indices

Shuffle = Literal["samples", "blocks"]

#: Blocks of a window. A batch is drawn from so many places of the data; with fewer it is less mixed, and with more a
#: preprocessor keeps more memory.
WINDOW = 16

#: Named seed paths: each gives every block, or every sample, a random word of its own in each epoch.
_BLOCKS, _SAMPLES = "order/blocks", "order/samples"

_WORD = 2**64


@dataclass(frozen=True)
class OrderSpec:
    """The way in which the samples of an epoch are shuffled.

    Attributes:
        shuffle: "samples": all with all, as DistributedSampler does. "blocks": see `BlockOrder`.
        window: with blocks, how many of them are mixed.
        block: with blocks, the least samples of one: those of the source are joined until they have so many, and a
            source that has none is cut into such. None: blocks are the source's own.
        weights: with samples, by what they are drawn, see `preprocess.sources.source`; None: each comes once.

    Raises:
        DataSpecError: one of these is none of what it can be.
    """

    shuffle: Shuffle = "samples"
    window: int = WINDOW
    block: int | None = None
    weights: str | None = None

    def __post_init__(self) -> None:
        known = get_args(Shuffle)
        if self.shuffle not in known:
            raise DataSpecError(self.shuffle, "shuffle is samples or blocks", spelling_advice(str(self.shuffle), known))
        for name, value in (("window", self.window), ("block", self.block)):
            if value is not None and (type(value) is not int or value < 1):
                raise DataSpecError(value, f"{name} of an order is a whole number of at least 1", f"mend {name}")
        if self.weights is not None and self.shuffle == "blocks":
            rule = "samples that are drawn by weights come from anywhere, and not block by block"
            raise DataSpecError(self.weights, rule, "take shuffle: blocks or the weights away")

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | OrderSpec | None) -> OrderSpec | None:
        """Return the order that a mapping describes; None where all samples are shuffled with all.

        Raises:
            DataSpecError: a key is unknown, or a value is none of what it can be.
        """
        if isinstance(values, Mapping):
            known = [field.name for field in fields(cls)]
            for key in values:
                if key not in known:
                    raise DataSpecError(key, "an order has no such key", spelling_advice(str(key), known))
            values = cls(**values)
        is_plain = values is None or (values.shuffle == "samples" and values.weights is None)
        return None if is_plain else values


@dataclass(frozen=True)
class BlockOrder:
    """Orders in which blocks come in windows: a pure function of (boundaries of the blocks, window, seed, epoch).

    The blocks are dealt to W strata of neighbours, as many to each as can be. Each stratum is permuted, and the k-th
    window has the k-th block of every stratum; the samples of a window are shuffled. So a window has blocks from all
    over the data, W at most, and a sample comes at most a window's length before or after the others of its block.

    Each stratum belongs to one preprocessor in all epochs: it alone reads these blocks, and has as many of each window
    as the others, give or take one. Held-out samples keep their own order; their blocks go to preprocessors by turns.

    Attributes:
        length: n, samples of all blocks.
        starts: the first sample of each block, ascending from 0.
        window: W, blocks of a window.
        held_out: the first sample of each block of held-out samples, ascending from 0; none where they have no blocks.
    """

    length: int
    starts: tuple[int, ...]
    window: int = WINDOW
    held_out: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        starts = np.array(self.starts, np.int64)
        if not starts.size or starts[0] != 0 or starts[-1] >= self.length or np.any(np.diff(starts) <= 0):
            raise ValueError(f"starts of blocks ascend from 0 and stay below {self.length}")
        if self.window < 1:
            raise ValueError(f"window is {self.window}: it has at least one block")

    def __hash__(self) -> int:
        return hash((self.length, len(self.starts), self.starts[-1], self.window))  # that of all takes its time

    def of(self, seed: int, epoch: int) -> Indices:
        """The order of an epoch, (n,)."""
        window = np.repeat(self._windows(seed, epoch), self._sizes).astype(np.uint64)
        bits = np.uint64(max(1, self.windows.bit_length()))
        keys = (window << (np.uint64(64) - bits)) | (_words(self.length, seed, epoch, _SAMPLES) >> bits)
        return np.argsort(keys, kind="stable")

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.starts)

    @property
    def strata(self) -> int:
        """Number of strata: W, or fewer where there are fewer blocks."""
        return min(self.window, self.blocks)

    @property
    def windows(self) -> int:
        """Windows of an epoch; the last one may have fewer blocks."""
        return -(-self.blocks // self.strata)

    def strata_of(self, samples: Indices) -> Indices:
        """The stratum of each sample, (count,)."""
        return self._strata[self.blocks_of(samples)]

    def blocks_of(self, samples: Indices) -> Indices:
        """The block of each sample, (count,)."""
        return np.searchsorted(self._starts, samples, "right") - 1

    def held_out_blocks_of(self, samples: Indices) -> Indices:
        """The block of each held-out sample, (count,); the sample itself where these have no blocks."""
        return np.searchsorted(self._held_out, samples, "right") - 1 if self.held_out else samples

    def _windows(self, seed: int, epoch: int) -> Indices:
        """The window of each block."""
        order = np.lexsort((_words(self.blocks, seed, epoch, _BLOCKS), self._strata))
        windows = np.empty(self.blocks, np.int64)
        windows[order] = np.arange(self.blocks) - np.searchsorted(self._strata, self._strata)
        return windows

    @cached_property
    def _starts(self) -> Indices:
        return np.array(self.starts, np.int64)

    @cached_property
    def _held_out(self) -> Indices:
        return np.array(self.held_out, np.int64)

    @cached_property
    def _sizes(self) -> Indices:
        return np.diff(self._starts, append=self.length)

    @cached_property
    def _strata(self) -> Indices:
        """The stratum of each block, ascending: the first ones have a block more where they do not come out even."""
        each, more = divmod(self.blocks, self.strata)
        return np.repeat(np.arange(self.strata), [each + (stratum < more) for stratum in range(self.strata)])


def _words(count: int, seed: int, epoch: int, path: str) -> npt.NDArray[np.uint64]:
    """Return random words; Philox's, which no version of NumPy changes."""
    name = int.from_bytes(blake2b(f"preprocess/{path}".encode(), digest_size=8).digest(), "little")
    philox = np.random.Philox(key=np.array([seed % _WORD, name], np.uint64), counter=[0, 0, epoch, 0])
    words: npt.NDArray[np.uint64] = philox.random_raw(count)
    return words


#: The two kinds of samples; each is a named seed path of its own.
TRAIN = "train"
HELD_OUT = "held_out"

#: By kind, the named seed path on which what stands in for a corrupt sample is drawn.
SUBSTITUTE = {kind: f"substitute/{kind}" for kind in (TRAIN, HELD_OUT)}


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


def _drawn_order(weights: npt.NDArray[np.float64], seed: int, epoch: int) -> npt.NDArray[np.int64]:
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
        """The order of an epoch, see `order_of` and `_drawn_order`, (length,)."""
        key = (seed, epoch)
        if key not in self._orders:
            order = (
                order_of(self.length, seed, epoch, self.blocks)
                if self.weights is None
                else _drawn_order(self.weights, seed, epoch)
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


def global_generator_states() -> tuple[Any, ...]:
    """Return what the generators of Python, NumPy and torch (CPU) will draw next: equal where nothing was drawn."""
    import torch

    name, key, *rest = np.random.get_state()
    return random.getstate(), name, np.asarray(key).tobytes(), rest, torch.get_rng_state().numpy().tobytes()


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


Mask = npt.NDArray[np.bool_]

#: Samples that are tried in the place of one that is corrupt. If half of all were corrupt, none of so many could be
#: made once in 2^64 times: it is then an error in the code, which raises for every sample.
MOST_SUBSTITUTES = 64


def substitutes(
    generator: SampleGenerator, kind: str, seed: int, epoch: int, sample: int, length: int, own: Mask | None = None
) -> Iterator[int]:
    """Yield what to try in a sample's place, all others being equally likely.

    A network with a part of the samples takes the first of those that are drawn for all which is its own: where that
    one is the first for all, too, it need not be made again. In a small part none of them may be; then as many are
    drawn from the part.

    Args:
        generator: gives each sample's generator.
        kind: "train" or "held_out".
        epoch: 0 where samples are the same in all epochs.
        length: samples of that kind.
        own: which of them alone may be taken, (length,); None: all.
    """
    others = length - 1
    if others == 0:
        return
    rng = generator(seed, epoch, sample, SUBSTITUTE[kind])
    drawn = rng.integers(others, size=MOST_SUBSTITUTES)
    drawn += drawn >= sample
    if own is None:
        yield from drawn.tolist()
        return
    mine = np.flatnonzero(own)
    mine = mine[mine != sample]
    if mine.size:
        more = mine[rng.integers(mine.size, size=MOST_SUBSTITUTES)]
        yield from drawn[own[drawn]].tolist()
        yield from more.tolist()


def mask_of(samples: Indices, length: int) -> Mask:
    """Return which of so many samples these are, (length,)."""
    mask = np.zeros(length, np.bool_)
    mask[samples] = True
    return mask
