"""Ends of distributions: values that a search may suggest, for checks before it begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleet.spec.distributions import Distribution

MOST_CORNERS = 64  # of one search


def corners(over: Mapping[str, Distribution]) -> list[dict[str, Any]]:
    """Values of trials: each value of a choice and both ends of a range come in one, the other paths at their first.

    At most 64 of them.
    """
    ends = {path: _ends(what) for path, what in over.items()}
    first = {path: values[0] for path, values in ends.items()}
    found = [first]
    for path, values in ends.items():
        found += [{**first, path: value} for value in values[1:]]
    return found[:MOST_CORNERS]


def _ends(what: Distribution) -> list[Any]:
    if what.choice is not None:
        return list(what.choice)
    if what.blocks is not None:
        inner = _ends(what.blocks.each)
        return [[value] * count for count in sorted(set(what.blocks.count)) for value in inner]
    if what.elements is not None:
        parts = [_ends(child) for child in what.elements]
        return [[values[min(number, len(values) - 1)] for values in parts] for number in range(max(map(len, parts)))]
    low, high = next(ends for ends in (what.uniform, what.log_uniform, what.integer) if ends is not None)
    return [low] if low == high else [low, high]


def combinations(what: Distribution) -> int | None:
    """How many values a distribution has; None: any number."""
    if what.choice is not None:
        return len(what.choice)
    if what.integer is not None:
        return what.integer[1] - what.integer[0] + 1
    if what.blocks is not None:
        inner = combinations(what.blocks.each)
        low, high = what.blocks.count
        return None if inner is None else sum(inner**count for count in range(low, high + 1))
    if what.elements is not None:
        return product(what.elements)
    return None


def product(distributions: Iterator[Distribution] | tuple[Distribution, ...]) -> int | None:
    """How many combinations of their values several distributions have; None: any number."""
    result = 1
    for what in distributions:
        count = combinations(what)
        if count is None:
            return None
        result *= count
    return result
