"""Drivers of a search: results in any order, some of them early."""

from __future__ import annotations

import random
from collections.abc import Callable

from fleet.search import Search

Value = Callable[[int, int], "float | None"]


def drive(search: Search, value: Value, seed: int = 0, early: float = 0.3) -> Search:
    """Tell results in an order drawn by `seed` until the search is over.

    Args:
        value: (trial, epoch) -> result.
        early: how often something is told that nobody needs yet.
    """
    order = random.Random(seed)
    while not search.is_over:
        ahead = search.ahead() if order.random() < early else ()
        segment = order.choice(ahead or search.needed())
        search.tell(segment.trial, segment.end, value(segment.trial, segment.end))
    return search
