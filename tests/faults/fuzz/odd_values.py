"""Values of given types, odd ones above all: NaN, infinities, half surrogate pairs, NumPy scalars, huge integers."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

TEXTS = st.text(st.characters(exclude_categories=()), max_size=6) | st.sampled_from(
    ["", "\ud800", "a\udce9", "\x00", "\n", "{}", "..", ".", "a/b", "%2F", "1", "\u2028", "é" * 300]
)
WHOLE = st.integers() | st.sampled_from([2**63, -(2**63), 10**400, 0]) | st.integers(-100, 100).map(np.int64)
NUMBERS = st.floats() | st.floats().map(np.float64) | st.floats(width=32).map(np.float32) | st.integers(-9, 9)
PLAIN = st.none() | st.booleans() | WHOLE | NUMBERS | TEXTS


def deep(levels: int) -> Any:
    """Lists in lists."""
    value: Any = 1.5
    for _ in range(levels):
        value = [value]
    return value


TREES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
) | st.sampled_from([3, 90, 150, 900, 3000]).map(deep)


def plain(value: Any) -> Any:
    """Without NumPy scalars; what is too deep becomes null."""
    try:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(plain(item) for item in value)
    except RecursionError:
        return None
    return value.item() if isinstance(value, np.generic) else value


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type, as a dataclass spells it."""
    simple = {int: WHOLE, float: NUMBERS, str: TEXTS, bool: st.booleans(), Any: TREES, type(None): st.none()}
    if kind in simple:
        return simple[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        fields = {name: of_type(hint) for name, hint in get_type_hints(kind).items()}
        return st.fixed_dictionaries(fields).map(lambda values: made(kind, values))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(of_type, arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(of_type(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of_type, arguments))
    if origin is list:
        return st.lists(of_type(arguments[0]), max_size=3)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(of_type(arguments[0]).filter(_is_key), of_type(arguments[1]), max_size=3)
    raise AssertionError(f"a message has a field of type {kind}: say here what values it has")


def made(kind: type, values: dict[str, Any]) -> Any:
    """The dataclass of these values; where it does not take them, of numbers that are as odd, but positive."""
    try:
        return kind(**values)
    except (ValueError, TypeError, OverflowError):
        small = {name: abs(int(v)) % 97 + 1 if isinstance(v, (int, np.integer)) else v for name, v in values.items()}
    try:
        return kind(**small)
    except (ValueError, TypeError, OverflowError):
        reject()


def _is_key(value: Any) -> bool:
    return not isinstance(value, np.generic)


def same(one: Any, other: Any) -> bool:
    """Whether a value came back: NaN as NaN, tuples as lists, NumPy scalars as plain ones, keys as text."""
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    if dataclasses.is_dataclass(one):
        return type(one) is type(other) and same(_fields(one), _fields(other))
    if isinstance(one, Mapping):
        keys = all(str(there) in (str(key), _text(str(key))) for key, there in zip(one, other))
        return len(one) == len(other) and keys and all(map(same, one.values(), other.values()))
    if isinstance(one, (list, tuple)):
        return isinstance(other, (list, tuple)) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, str):
        return other in (one, _text(one))
    if isinstance(one, np.generic):
        return same(one.item(), other)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _text(text: str) -> str:
    """Halves of surrogate pairs become question marks."""
    return text.encode(errors="replace").decode()
