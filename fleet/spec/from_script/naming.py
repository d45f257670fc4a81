"""A job's name after a file's."""

from __future__ import annotations

import re


def named_like(stem: str) -> str:
    """A job's name after a file's: its letters and digits, and a dash for all others between them."""
    return "-".join(re.findall(r"[A-Za-z0-9]+", stem)) or "network"
