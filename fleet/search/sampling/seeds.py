"""Seeds of suggestions."""

from __future__ import annotations

import hashlib
import json


def seed_at_path(seed: int, trial: int, purpose: str) -> int:
    """A seed of 32 bits by seed path (seed of the search, trial, purpose)."""
    text = json.dumps([seed, trial, purpose])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")
