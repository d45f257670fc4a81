"""Which trials are best where several metrics count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def front(losses: Mapping[int, Sequence[float]]) -> tuple[int, ...]:
    """The Pareto front, ascending: trials that no other dominates, being as good by each loss and better by one.

    Args:
        losses: trial -> its losses, as many of each trial; less is better.
    """
    found: list[int] = []
    for trial in sorted(losses, key=lambda each: (tuple(losses[each]), each)):  # whoever dominates comes first
        if not any(_dominates(losses[other], losses[trial]) for other in found):
            found.append(trial)
    return tuple(sorted(found))


def _dominates(mine: Sequence[float], other: Sequence[float]) -> bool:
    return tuple(mine) != tuple(other) and all(a <= b for a, b in zip(mine, other))
