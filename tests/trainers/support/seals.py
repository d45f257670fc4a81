"""Checkpoints' seals, taken off and put on as their writers put them."""

from __future__ import annotations

import hashlib
import re

_INDEXED = re.compile(rb'\{"others".*\}\nfleet index blake2b [0-9a-f]{16} [0-9a-f]{64}', re.DOTALL)


def apart(content: bytes) -> tuple[bytes, bytes]:
    """Return a file's HDF5 data, and the text of its index."""
    found = _INDEXED.search(content)
    assert found is not None and found.end() == len(content)
    return content[: found.start()], found.group().rpartition(b"\nfleet index")[0]


def sealed(data: bytes, index: bytes) -> bytes:
    """HDF5 data with an index and a seal behind it."""
    return data + index + f"\nfleet index blake2b {len(index):016x} ".encode() + _digest(index)


def sealed_without_index(data: bytes) -> bytes:
    """HDF5 data as versions sealed it whose format is 2."""
    return data + b"\nfleet blake2b " + _digest(data)


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32).hexdigest().encode()
