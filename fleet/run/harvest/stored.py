"""What a checkpoint's file tells without being read as a whole."""

from __future__ import annotations

import math
from pathlib import Path

import h5py

_UNREADABLE = (OSError, KeyError, RuntimeError, ValueError)


def parameter_count(path: Path) -> int | None:
    """Return how many numbers a checkpoint's parameters have, all together; None if it cannot be read."""
    try:
        with h5py.File(path, "r") as file:
            parameters = file["state"]["parameters"]
            return sum(math.prod(parameters[name].shape) for name in _arrays(parameters))
    except _UNREADABLE:
        return None


def content_digest(path: Path) -> str | None:
    """Return the digest of a checkpoint's content, blake2b in hexadecimal; None if it cannot be read."""
    try:
        with h5py.File(path, "r") as file:
            return str(file.attrs["digest"])
    except _UNREADABLE:
        return None


def epoch_of(path: Path) -> int | None:
    """Return after how many finished epochs a checkpoint was written, by its name; None: the name says nothing."""
    words = path.stem.split("-")
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else None


def _arrays(group: h5py.Group) -> list[str]:
    """The names of all arrays below."""
    found: list[str] = []
    group.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    return found
