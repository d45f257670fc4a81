"""The blocks of a source: runs of samples that lie together, and are read together."""

from __future__ import annotations

from typing import Any

import numpy as np

from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Indices
from preprocess.samples.order import BlockOrder, OrderSpec
from preprocess.sources.map_style import MapStyleSource
from preprocess.sources.source import Source, Subset


def block_order(
    source: Source, order: OrderSpec | None, what: str, held_out: Source | None = None
) -> BlockOrder | None:
    """Return the order of a source's samples by blocks; None where all samples are shuffled with all.

    Args:
        held_out: where held-out samples come from; they may have no blocks.
        what: the name of the data set, for errors.

    Raises:
        SourceError: the source has no blocks, and the order does not say how long they are to be.
    """
    if order is None or order.shuffle == "samples":
        return None
    starts = _starts(source, order)
    if starts is None:
        rule = "its samples lie in no blocks: each is read alone"
        mend = "say how many samples one is to have, such as block: 256; or shuffle samples, which costs nothing here"
        raise SourceError(what, rule, mend)
    others = None if held_out is None else _starts(held_out, order)
    evaluated = () if others is None else tuple(others.tolist())
    return BlockOrder(len(source), tuple(starts.tolist()), order.window, evaluated)


def _starts(source: Source, order: OrderSpec) -> Indices | None:
    """The first sample of each block as the order asks for them; None where nothing says where blocks begin."""
    starts = block_starts(source)
    if starts is not None:
        return _joined(starts, order.block)
    return None if order.block is None else np.arange(0, len(source), order.block)


def block_starts(source: Source) -> Indices | None:
    """Return the first sample of each block, ascending from 0; None where the source has none.

    Built-in sources whose samples lie in chunks have a method `block_starts`; a map-style data set may have an
    attribute of that name.

    Raises:
        SourceError: a map-style data set gives something else.
    """
    if isinstance(source, Subset):
        inner = block_starts(source.source)
        if inner is None:
            return None
        blocks = np.searchsorted(inner, np.array(source.indices, np.int64), "right")
        return np.flatnonzero(np.diff(blocks, prepend=-1))
    if isinstance(source, MapStyleSource):
        given = getattr(source.items, "block_starts", None)
        return None if given is None else _checked(given, len(source), type(source.items).__qualname__)
    find = getattr(source, "block_starts", None)
    starts: Indices | None = None if find is None else find()
    return starts


def block_bytes(source: Source, blocks: int) -> tuple[int, int]:
    """Return (bytes of a block, bytes of blocks that a process keeps); (0, 0) where nothing is kept.

    Args:
        blocks: how many there are; their mean is told.
    """
    while isinstance(source, Subset):
        blocks = max(1, blocks * len(source.source) // len(source))
        source = source.source
    find = getattr(source, "chunk_bytes", None)
    if find is None:
        return 0, 0
    read, kept = find()
    return -(-read // blocks), kept


def _checked(given: Any, length: int, what: str) -> Indices:
    """What a map-style data set says its blocks' starts are."""
    try:
        starts = np.asarray(given)
        ok = starts.ndim == 1 and starts.dtype.kind in "iu" and starts.size and starts[0] == 0
        ok = ok and starts[-1] < length and bool(np.all(np.diff(starts.astype(np.int64)) > 0))
    except (TypeError, ValueError):
        ok = False
    if not ok:
        rule = f"its block_starts are not whole numbers that ascend from 0 and stay below {length}"
        raise SourceError(what, rule, "let block_starts hold the first sample of each block, such as [0, 500, 1000]")
    return starts.astype(np.int64)


def _joined(starts: Indices, least: int | None) -> Indices:
    """Blocks of at least so many samples; the last one may have fewer."""
    if least is None:
        return starts
    kept = [0]
    for start in starts[1:].tolist():
        if start - kept[-1] >= least:
            kept.append(start)
    return np.array(kept, np.int64)
