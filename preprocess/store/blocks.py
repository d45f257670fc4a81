"""Where in a stretch of memory what is kept lies: best fit, neighbours merged (Knuth, TAOCP 1, section 2.5)."""

from __future__ import annotations

from bisect import bisect_left, insort

ALIGNMENT = 64  # a cache line


def rounded(size: int) -> int:
    """Bytes that something of so many bytes takes."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class BlockAllocator:
    """Gives stretches of memory away and takes them back.

    Args:
        size: bytes in all.
    """

    def __init__(self, size: int) -> None:
        size = size // ALIGNMENT * ALIGNMENT
        self._by_size = [(size, 0)] if size else []  # free ones, (bytes, offset), ascending
        self._sizes = {offset: length for length, offset in self._by_size}  # offset -> bytes, of the free ones
        self._offsets = {offset + length: offset for length, offset in self._by_size}  # end -> offset, likewise

    def take(self, size: int) -> int | None:
        """The offset of the smallest free stretch that holds so many bytes, or None; it is taken from its start."""
        size = rounded(size)
        place = bisect_left(self._by_size, (size, 0))
        if place == len(self._by_size):
            return None
        length, offset = self._by_size[place]
        self._remove(length, offset)
        if length > size:
            self._add(length - size, offset + size)
        return offset

    def give(self, offset: int, size: int) -> None:
        """Take back what `take` gave for that size."""
        size = rounded(size)
        after = self._sizes.get(offset + size)
        if after is not None:
            self._remove(after, offset + size)
            size += after
        before = self._offsets.get(offset)
        if before is not None:
            self._remove(offset - before, before)
            offset, size = before, size + offset - before
        self._add(size, offset)

    def _add(self, size: int, offset: int) -> None:
        insort(self._by_size, (size, offset))
        self._sizes[offset] = size
        self._offsets[offset + size] = offset

    def _remove(self, size: int, offset: int) -> None:
        self._by_size.pop(bisect_left(self._by_size, (size, offset)))
        del self._sizes[offset], self._offsets[offset + size]
