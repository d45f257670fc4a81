"""Secrets in what a run tells and writes down: their values are told as `***`."""

from __future__ import annotations

import re

MASK = "***"
_NAMES = ("TOKEN", "KEY", "PASSWORD", "PASSWD", "SECRET")
# As long as can be: a password may hold a slash, or an @ itself. A port is no password.
_PASSWORD = re.compile(r"(?<=://)([^:/\s@]*):(?!\d+(?:[/?#]|$))\S*@")
_PARAMETER = re.compile(r"([?&;])([^=&;\s]+)=([^&;#\s]*)")


def is_secret(name: str) -> bool:
    """Return whether the value of a variable of this name is nobody else's to see: WANDB_API_KEY, db-password."""
    return any(part in name.upper() for part in _NAMES)


def masked_uri(text: str) -> str:
    """Return a text in which passwords and tokens of all URIs are `***`: http://me:***@host/?token=***."""
    text = _PASSWORD.sub(rf"\1:{MASK}@", text)
    return _PARAMETER.sub(lambda found: f"{found[1]}{found[2]}={MASK}" if is_secret(found[2]) else found[0], text)
