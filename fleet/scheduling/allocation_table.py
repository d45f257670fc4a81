"""The counts of devices with the greatest sum of gains (Saxena et al., 2020, III-C, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.scheduling.rates import Floats

_Choices = npt.NDArray[np.int16]


class _More(NamedTuple):
    """What a job gains by more than its least."""

    job: int
    gains: Floats  # by further devices; 0 for none


def least_count(gains: Floats) -> int | None:
    """The fewest devices on which a job can run; None: there is no such number."""
    possible = np.flatnonzero(gains > -np.inf)
    return int(possible[0]) + 1 if len(possible) else None


def best_counts(gains: Sequence[Floats], devices: int) -> list[int] | None:
    """The counts k_j with the greatest sum of gains, each job with one device at least, together at most `devices`.

    Eq. 4: P(j, K) = max over k of P(j - 1, K - k) + T_j(k), kept over the devices beyond what the jobs need at least,
    for only these are there to be chosen; a job that gains nothing by them takes no part. A row of the table is
    computed at once, so the time is O(J K k_max) in steps of numpy. Of equal sums the later job takes the fewer.

    Args:
        gains: for each job, T_j on 1, 2, ..., k_max devices; -inf where it cannot run.
        devices: K.

    Returns:
        The counts, or None: infeasible, the jobs cannot all have devices at once.
    """
    least = [least_count(row) for row in gains]
    counts = [count for count in least if count is not None]
    spare = devices - sum(counts)
    if len(counts) < len(gains) or spare < 0:
        return None
    wanting = [more for job, row in enumerate(gains) if len((more := _more(job, row, counts[job])).gains) > 1]
    spare = min(spare, sum(len(more.gains) - 1 for more in wanting))
    for job, further in zip((more.job for more in wanting), _shared([more.gains for more in wanting], spare)):
        counts[job] += further
    return counts


def _more(job: int, gains: Floats, least: int) -> _More:
    """Up to the count with the greatest gain: no job is given devices that lose."""
    beyond = gains[least - 1 :] - gains[least - 1]
    return _More(job, beyond[: int(beyond.argmax()) + 1])


def _shared(gains: list[Floats], spare: int) -> list[int]:
    """How many of the `spare` devices each job takes."""
    if not spare:
        return [0] * len(gains)
    best = np.zeros(spare + 1)
    choices: list[_Choices] = []
    for row in gains:
        best, choice = _next_row(best, row)
        choices.append(choice)
    taken = []
    for choice in reversed(choices):
        taken.append(int(choice[spare]))
        spare -= taken[-1]
    return taken[::-1]


def _next_row(best: Floats, gains: Floats) -> tuple[Floats, _Choices]:
    """P(j, :) from P(j - 1, :), and the k_j that each entry chose."""
    reach = min(len(gains), len(best))
    sums = np.full((reach, len(best)), -np.inf)
    for further in range(reach):
        np.add(best[: len(best) - further], gains[further], out=sums[further, further:])
    choice = sums.argmax(axis=0)
    return sums[choice, np.arange(len(best))], choice.astype(np.int16)
