"""An order for data that lie in blocks, such as row groups: the samples of a block come near each other in an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from preprocess.samples.errors import DataSpecError, spelling_advice

Indices = npt.NDArray[np.int64]
Shuffle = Literal["samples", "blocks"]

#: Blocks of a window. A batch is drawn from so many places of the data; with fewer it is less mixed, and with more a
#: preprocessor keeps more memory.
WINDOW = 16

#: Named seed paths: each gives every block, or every sample, a random word of its own in each epoch.
_BLOCKS, _SAMPLES = "order/blocks", "order/samples"

_WORD = 2**64


@dataclass(frozen=True)
class OrderSpec:
    """How the samples of an epoch are shuffled.

    Attributes:
        shuffle: "samples": all with all, as DistributedSampler does. "blocks": see `BlockOrder`.
        window: with blocks, how many of them are mixed.
        block: with blocks, the least samples of one: those of the source are joined until they have so many, and a
            source that has none is cut into such. None: blocks are the source's own.
        weights: with samples, by what they are drawn, see `preprocess.sources.weights`; None: each comes once.

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
        """How many there are."""
        return len(self.starts)

    @property
    def strata(self) -> int:
        """How many there are: W, or fewer where there are fewer blocks."""
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
