"""The order in which gloo's ring allreduce adds, stated once.

gloo (github.com/facebookincubator/gloo, gloo/allreduce.cc, `ring`) cuts the N ranks' vectors into N chunks. Chunk c is
folded around the ring, downwards from rank c - 1:

    acc = x[(c - 1) % N];  for k in 2 .. N: acc = x[(c - k) % N] + acc          # ends at rank c

Floating-point addition does not associate, so this order is part of a result. The length of a vector moves the chunks'
boundaries and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

_LARGEST_SEGMENT = 1 << 20
"""gloo's kMaxSegmentSize, bytes."""


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)


def chunks(elements: int, ranks: int, element_size: int) -> list[slice]:
    """Return gloo's `ranks` chunks of a vector of `elements` elements of `element_size` bytes; some may be empty."""
    size = elements * element_size
    segments = _ceil(max(_ceil(size, _LARGEST_SEGMENT), 2 * ranks), ranks) * ranks
    segment_elements = _ceil(_ceil(size, segments), element_size)
    width = segments // ranks * segment_elements
    return [slice(min(elements, c * width), min(elements, (c + 1) * width)) for c in range(ranks)]


def ranks_of_fold(chunk: int, ranks: int) -> list[int]:
    """Return the ranks in the order in which their values enter the fold of `chunk`."""
    return [(chunk - k) % ranks for k in range(1, ranks + 1)]


def home_chunks(block: Sequence[int], ranks: int) -> list[int]:
    """Return the chunks whose folds begin inside a block of consecutive ranks; the last one ends at the next block."""
    return [(rank + 1) % ranks for rank in block]
