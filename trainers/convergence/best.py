"""Which of a job's epochs was the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainers.convergence.convergence import is_better, metric_of


def best_epoch(history: Sequence[Mapping[str, float]], metric: str) -> int | None:
    """Return the index of the epoch with the best value of a metric, of equal ones the earliest; NaN is no value.

    None if there is none. KeyError, naming the metrics there are, if the history lacks it.
    """
    best: int | None = None
    for index, metrics in enumerate(history):
        value = metric_of(metrics, metric)
        if value == value and (best is None or is_better(metric, value, history[best][metric])):
            best = index
    return best
