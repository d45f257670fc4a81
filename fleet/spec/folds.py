"""A job with folds -> one job for each of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from fleet.spec.values import MOST_FOLDS


def folded(job: Mapping[str, Any], room: int) -> Iterator[dict[str, Any]]:
    """The jobs that a mapping of a job's keys stands for: itself, unless it has `folds` and names none of them.

    What is wrong with its keys is left for whoever looks at the jobs.

    Args:
        job: all keys, defaults laid under.
        room: how many jobs there may be; none come if there are more.
    """
    count, name = folds_of(job), job.get("name")
    if count == 1 or not isinstance(name, str):
        yield dict(job)
    elif count <= room:
        for fold in range(count):
            yield {**copy.deepcopy(dict(job)), "fold": fold, "name": f"{name}-fold-{fold}"}


def folds_of(job: Mapping[str, Any]) -> int:
    """How many jobs the mapping stands for, as far as its folds are such as can be."""
    count = job.get("folds")
    if isinstance(count, int) and 2 <= count <= MOST_FOLDS and job.get("fold") is None:
        return count
    return 1
