"""Checks of policy parameters."""

from __future__ import annotations


def check_share(name: str, value: object) -> None:
    """Raises ValueError unless `value` is a number above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ValueError(f"{name} is {value!r}; it must be a number above 0 and at most 1, such as 0.8")


def check_flag(name: str, value: object) -> None:
    """Raises ValueError unless `value` is true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; it must be true or false")
