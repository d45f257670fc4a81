"""The histories of two states held against each other: the metrics of each finished epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from trainers.convergence.history import History

Epochs = History | Sequence[Mapping[str, float]]


def history_difference(one: Epochs, other: Epochs) -> str:
    """Say in what two histories differ, and where first, of what is kept; "" if in nothing. Two NaNs do not differ."""
    left, right = History.of(one), History.of(other)
    values = list(_values(left, right))
    differing = [value for value in values if not _alike(*value[2:])]
    if not differing:
        first = max(left.dropped, right.dropped)
        return "" if left == right else f"values of the first {first} epochs differ, of which a digest is kept"
    what = f"{len(differing)} of {len(values)} values differ"
    if len(left) != len(right):
        what += f", as there are {len(left)} and {len(right)} epochs"
    epoch, name, ours, theirs = differing[0]
    return f"{what}; first: epoch {epoch}, {name}: {_text(ours)} and {_text(theirs)}{_apart(ours, theirs)}"


def _values(left: History, right: History) -> Iterator[tuple[int, str, float | None, float | None]]:
    """Yield (epoch from 1, metric, left, right); None where a side has no such value."""
    for number in range(max(left.dropped, right.dropped), max(len(left), len(right))):
        ours, theirs = left.at(number + 1), right.at(number + 1)
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            yield number + 1, name, ours.get(name), theirs.get(name)


def _alike(left: float | None, right: float | None) -> bool:
    if left is None or right is None:
        return left is right
    return left == right or (math.isnan(left) and math.isnan(right))


def _text(value: float | None) -> str:
    return "nothing" if value is None else repr(float(value))


def _apart(left: float | None, right: float | None) -> str:
    """How far two numbers are from each other, as a part of the larger; "" where that says nothing."""
    if left is None or right is None or not (math.isfinite(left) and math.isfinite(right)):
        return ""
    return f", {abs(left - right) / max(abs(left), abs(right)):.1g} of the larger apart"
