"""Every combination of values once."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from fleet.search.record import Record
from fleet.spec.corners import combinations, product
from fleet.spec.distributions import Distribution


class Grid:
    """Trial i has combination i; the last path varies fastest, and shorter blocks come first.

    Args:
        over: dotted path -> its distribution, of choices and whole numbers.
    """

    prefetch: int | None = None

    def __init__(self, over: Mapping[str, Distribution]) -> None:
        self._over = dict(over)

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial.

        Raises:
            IndexError: there are not so many.
        """
        there = product(tuple(self._over.values()))
        if there is None or trial >= there:
            raise IndexError(f"the grid has {there} combinations, and none for trial {trial}")
        chosen = _nth_of(list(self._over.values()), trial)
        return dict(zip(self._over, chosen))


def _nth_of(distributions: Sequence[Distribution], number: int) -> list[Any]:
    """A combination by its number; the last distribution varies fastest."""
    values = []
    for what in reversed(distributions):
        number, inner = divmod(number, combinations(what) or 1)
        values.append(_nth(what, inner))
    return values[::-1]


def _nth(what: Distribution, number: int) -> Any:
    if what.choice is not None:
        return copy.deepcopy(what.choice[number])
    if what.integer is not None:
        return what.integer[0] + number
    if what.elements is not None:
        return _nth_of(what.elements, number)
    assert what.blocks is not None, "a grid has no real numbers"
    each, count = combinations(what.blocks.each) or 1, what.blocks.count[0]
    while number >= each**count:
        number -= each**count
        count += 1
    return _nth_of([what.blocks.each] * count, number)
