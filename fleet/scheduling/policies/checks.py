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


def check_seconds(name: str, value: object) -> None:
    """Raises ValueError unless `value` is a finite number of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {value!r}; it must be a number of seconds, 0 or more, such as 60")


def check_period(name: str, value: object) -> None:
    """Raises ValueError unless `value` is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ValueError(f"{name} is {value!r} s; it must be a number of seconds above 0, and finite, such as 60")


def check_mean_epochs(value: object) -> None:
    """Raises ValueError unless `value` is None or a finite number above 0."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
    if value is not None and not number:
        raise ValueError(f"mean_epochs is {value!r}; it must be a number of epochs above 0, such as 30, or left out")


def check_count(name: str, value: object) -> None:
    """Raises ValueError unless `value` is a whole number of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of 1 or more, such as 4")
