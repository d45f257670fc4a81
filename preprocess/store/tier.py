"""Samples that are kept in one arena, and which of them go where it is full."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from preprocess.samples.layout import Array, SampleLayout
from preprocess.store.arena import Arena
from preprocess.store.blocks import BlockAllocator, rounded
from preprocess.store.keeper import Keeper
from preprocess.store.known_futures import Indices, KnownFutures

_NOWHERE = -1


@dataclass(frozen=True)
class Prepared:
    """A sample after the transforms that draw nothing.

    Attributes:
        image: its input so far, of the layout that the store was made for; not to be written to.
        target: with the layout's shape and dtype.
    """

    image: Array
    target: Array


class Tier:
    """Keeps samples in an arena. Which ones, a `Keeper` chooses; the latest lie in a reserve until it has chosen.

    Args:
        arena: where they lie.
        reserve: bytes of it for samples that nothing is decided of.
        layout: how prepared samples are laid out; -1 for a side that differs.
        futures: when each is read next.
        draw: see `Keeper`.
    """

    def __init__(
        self, arena: Arena, reserve: int, layout: SampleLayout, futures: KnownFutures, draw: np.random.Generator
    ) -> None:
        self._arena, self._layout = arena, layout
        self._blocks = BlockAllocator(arena.size)
        self._keeper = Keeper(futures, max(arena.size - reserve, 0), draw)
        self._offsets = np.full(futures.samples, _NOWHERE, np.int64)
        varies = -1 in layout.input_shape
        self._shapes = np.zeros((futures.samples, len(layout.input_shape)), np.int32) if varies else None
        self._target_dtype, self._item = np.dtype(layout.target_dtype), np.dtype(layout.input_dtype)
        self._new: dict[int, int] = {}  # sample -> bytes, of those of which nothing is decided

    @property
    def used(self) -> int:
        """Bytes of what is kept."""
        return self._keeper.used

    @property
    def nbytes(self) -> int:
        """Memory that the index takes."""
        shapes = 0 if self._shapes is None else self._shapes.nbytes
        return self._keeper.nbytes + self._offsets.nbytes + shapes

    def __len__(self) -> int:
        return len(self._keeper)

    def holds(self, samples: Indices) -> npt.NDArray[np.bool_]:
        """Whether each of these samples is kept, (count,)."""
        return self._keeper.holds(samples)

    def find(self, sample: int) -> Prepared | None:
        """A sample that lies here, or None; valid until the next call of anything here."""
        offset = int(self._offsets[sample])
        if offset == _NOWHERE:
            return None
        shape = self._shape(sample)
        image_bytes = math.prod(shape) * self._item.itemsize
        content = self._arena.read(offset, image_bytes + self._layout.target_bytes)
        image = content[:image_bytes].view(self._item).reshape(shape)
        target = content[image_bytes:]
        return Prepared(image, target.view(self._target_dtype).reshape(self._layout.target_shape))

    def lay(self, sample: int, prepared: Prepared) -> bool:
        """Lay a new sample here for now, and say whether there was room; `choose` says what becomes of it."""
        size = prepared.image.nbytes + prepared.target.nbytes
        offset = self._blocks.take(size)
        if offset is None:
            return False
        try:
            self._arena.write(offset, (prepared.image, prepared.target))
        except OSError:
            self._blocks.give(offset, size)
            raise
        self._offsets[sample] = offset
        if self._shapes is not None:
            self._shapes[sample] = prepared.image.shape
        self._new[sample] = rounded(size)
        return True

    def choose(self) -> Indices:
        """Decide of the new ones; those that go lie here until they are dropped, (any,)."""
        if not self._new:
            return np.empty(0, np.int64)
        new = np.fromiter(self._new, np.int64, len(self._new))
        sizes = np.fromiter(self._new.values(), np.int64, len(self._new))
        self._new.clear()
        choice = self._keeper.choose(new, sizes)
        return np.concatenate([new[~choice.kept], choice.evicted])

    def drop(self, samples: Indices) -> None:
        """Give the room of samples back that `choose` let go."""
        for sample in samples.tolist():
            shape = self._shape(sample)
            size = math.prod(shape) * self._item.itemsize + self._layout.target_bytes
            self._blocks.give(int(self._offsets[sample]), size)
        self._offsets[samples] = _NOWHERE

    def _shape(self, sample: int) -> tuple[int, ...]:
        if self._shapes is None:
            return self._layout.input_shape
        shape: tuple[int, ...] = tuple(self._shapes[sample].tolist())
        return shape

    def relabelled(self, labels: npt.NDArray[np.int64], futures: KnownFutures) -> None:
        """Let sample i have the number labels[i] from now on, in an index of other futures; nothing is undecided."""
        offsets, shapes = self._offsets, self._shapes
        self._offsets = np.full(futures.samples, _NOWHERE, np.int64)
        self._offsets[labels] = offsets
        if shapes is not None:
            self._shapes = np.zeros((futures.samples, shapes.shape[1]), np.int32)
            self._shapes[labels] = shapes
        self._keeper.relabel(labels, futures)
