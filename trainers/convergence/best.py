"""Which of a job's epochs was the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainers.convergence.convergence import Direction, is_better, values_of


def best_epoch(history: Sequence[Mapping[str, float]], metric: str, better: Direction) -> int | None:
    """Return the index of the epoch with the best value of a metric, of equal ones the earliest; NaN is no value.

    None if there is none. KeyError, naming the metrics there are, if no epoch has it.
    """
    best: int | None = None
    values = values_of(history, metric) if history else []
    for index, value in enumerate(values):
        if value == value and (best is None or is_better(better, value, values[best])):
            best = index
    return best
