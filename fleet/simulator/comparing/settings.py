"""Settings as they are written on the command line: `jobs=1000,gap=30,sizes={1: 3, 8: 1}`; values are YAML."""

from __future__ import annotations

import re
from typing import Any

import yaml

_COMMA = re.compile(r",(?![^\[{]*[\]}])")  # not one inside of a list or a mapping


def read_settings(text: str, example: str) -> dict[str, Any]:
    """The values by their names.

    Args:
        example: what a user could have written.

    Raises:
        ValueError: a part is not NAME=VALUE, its value is not YAML, or a name is there twice.
    """
    settings: dict[str, Any] = {}
    for part in _COMMA.split(text):
        name, value = read_setting(part, example)
        if name in settings:
            raise ValueError(f"{text}: {name} is given twice; leave one of them out")
        settings[name] = value
    return settings


def read_setting(text: str, example: str) -> tuple[str, Any]:
    """One name and its value.

    Raises:
        ValueError: as `read_settings`.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals):
        raise ValueError(f"{text!r} is no NAME=VALUE; write it as {example}")
    try:
        return name, _as_number(yaml.safe_load(value))
    except yaml.YAMLError:
        raise ValueError(f"{text!r}: the value is not YAML; put it into quotes") from None


def number(name: str, value: object) -> float:
    """A value that has to be a number.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} is {value!r}; it must be a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is a number with too many digits; write it as 1e30") from None


def _as_number(value: Any) -> Any:
    """YAML 1.1 reads 1e6 as text; people mean the number."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return float(value)
    return value
