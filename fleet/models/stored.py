"""What a checkpoint's file tells without being read as a whole."""

from __future__ import annotations

import math
from pathlib import Path

from trainers import CheckpointError
from trainers.state.checkpoint import outline

_PARAMETERS = "/parameters/"


def parameter_count(path: Path) -> int | None:
    """Return how many numbers a checkpoint's parameters have, all together; None if it cannot be read."""
    try:
        arrays = outline(path).arrays
    except CheckpointError:
        return None
    return sum(math.prod(place.shape) for name, place in arrays.items() if name.startswith(_PARAMETERS))


def content_digest(path: Path) -> str | None:
    """Return the digest of a checkpoint's content, blake2b in hexadecimal; None if it cannot be read."""
    try:
        return outline(path).digest or None
    except CheckpointError:
        return None


def epoch_of(path: Path) -> int | None:
    """Return after how many finished epochs a checkpoint was written, by its name; None: the name says nothing."""
    words = path.stem.split("-")
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else None
