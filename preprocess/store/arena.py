"""The bytes of what is kept: memory of this process, or a file without a name. Both go with the process."""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress
from typing import Protocol

import numpy as np

from preprocess.samples.layout import Array

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14; Python has no name for it yet
_PAGE = 4096
_PIECE = 2**26


class Arena(Protocol):
    """A stretch of bytes."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def write(self, offset: int, parts: tuple[Array, ...]) -> None:
        """Write arrays one after the other; raises OSError where that cannot be."""
        ...

    def read(self, offset: int, size: int) -> Array:
        """The bytes there, uint8, valid until the next call; raises OSError where that cannot be."""
        ...


class MemoryArena:
    """Memory of this process, all pages of which are there from the start.

    Args:
        size: bytes.

    Raises:
        OSError: there is too little.
    """

    def __init__(self, size: int) -> None:
        self._map = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes = np.frombuffer(self._map, np.uint8)[:size]
        _touch(self._map, self._bytes)

    @property
    def size(self) -> int:
        return self._bytes.nbytes

    def write(self, offset: int, parts: tuple[Array, ...]) -> None:
        for part in parts:
            self._bytes[offset : offset + part.nbytes].view(part.dtype).reshape(part.shape)[...] = part
            offset += part.nbytes

    def read(self, offset: int, size: int) -> Array:
        return self._bytes[offset : offset + size]


class FileArena:
    """A file without a name, whose blocks are there from the start, so that a full disk is found out then.

    Args:
        folder: where it lies.
        size: bytes.

    Raises:
        OSError: the disk has too little room, or the folder is not there.
    """

    def __init__(self, folder: str, size: int) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 it is open as long as this is
        self.size = size
        self._scratch = np.empty(0, np.uint8)
        if size:
            os.posix_fallocate(self._file.fileno(), 0, size)

    def write(self, offset: int, parts: tuple[Array, ...]) -> None:
        for part in parts:
            whole = memoryview(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
            while whole:
                written = os.pwrite(self._file.fileno(), whole, offset)
                whole, offset = whole[written:], offset + written

    def read(self, offset: int, size: int) -> Array:
        if self._scratch.nbytes < size:
            self._scratch = np.empty(size, np.uint8)
        found = self._scratch[:size]
        done = 0
        while done < size:
            got = os.preadv(self._file.fileno(), [found.data[done:]], offset + done)
            if got == 0:
                raise OSError(f"the file of kept samples ends at byte {offset + done}")
            done += got
        return found


def _touch(block: mmap.mmap, view: Array) -> None:
    """Let all pages be there, large ones where the system has them; in pieces, as Python stands still meanwhile."""
    with suppress(OSError, AttributeError):
        block.madvise(mmap.MADV_HUGEPAGE)
    for start in range(0, view.nbytes, _PIECE):
        piece = view[start : start + _PIECE]
        try:
            block.madvise(_POPULATE_WRITE, start, len(piece))
        except OSError:
            piece[::_PAGE] = 0
