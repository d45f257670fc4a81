"""The counts of devices with the greatest sum of gains (Saxena et al., 2020, III-C, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Floats

_CELLS = 2**20
"""Sums that are looked at together."""
_FEW = 32


@dataclass(frozen=True, eq=False)
class _Table:
    """The best sums of gains of some jobs, by the devices that they have together beyond their least.

    Attributes:
        gains: by 0, 1, 2, ... further devices, all of them used; -inf where that cannot be.
        parts: the two tables that it was joined from; None: it is of one job.
        right: for each entry how many of the devices go to the second part.
    """

    gains: Floats
    parts: tuple[_Table, _Table] | None = None
    right: npt.NDArray[np.int32] | None = None


def least_count(gains: Floats) -> int | None:
    """The fewest devices on which a job can run; None: there is no such number."""
    possible = gains > -np.inf
    return int(possible.argmax()) + 1 if possible.any() else None


def best_counts(gains: Sequence[Floats], devices: int) -> list[int] | None:
    """The counts k_j with the greatest sum of gains, each job with one device at least, together at most `devices`.

    Eq. 4: P(j, K) = max over k of P(j - 1, K - k) + T_j(k), kept over the devices beyond what the jobs need at least,
    for only these are there to be chosen. A row of the table is computed at once. The rows of n jobs that gain alike
    are joined by doubling, in about log2 n steps. Among equal sums the one with the fewest devices is taken.

    Args:
        gains: for each job, T_j on 1, 2, ..., k_max devices; -inf where it cannot run.
        devices: K.

    Returns:
        The counts, or None: infeasible, the jobs cannot all have devices at once.
    """
    alike: dict[bytes, list[int]] = {}
    for job, row in enumerate(gains):
        alike.setdefault(row.tobytes(), []).append(job)
    least = {key: least_count(gains[jobs[0]]) for key, jobs in alike.items()}
    spare = devices - sum((least[key] or 0) * len(jobs) for key, jobs in alike.items())
    if None in least.values() or spare < 0:
        return None
    counts = [0] * len(gains)
    order: list[int] = []
    whole: _Table | None = None
    for key, jobs in alike.items():
        for job in jobs:
            counts[job] = least[key] or 0
        further = _further(gains[jobs[0]], counts[jobs[0]])
        if len(further) > 1 and spare:
            order += jobs
            several = _several(_Table(further), len(jobs), spare)
            whole = several if whole is None else _joined(whole, several, spare)
    if whole is not None:
        for job, more in zip(order, _taken(whole, int(whole.gains[: spare + 1].argmax()))):
            counts[job] += more
    return counts


def _further(gains: Floats, least: int) -> Floats:
    """What devices beyond the least bring, up to the count with the greatest gain: none is given that loses."""
    beyond = gains[least - 1 :] - gains[least - 1]
    return beyond[: int(beyond.argmax()) + 1]


def _several(one: _Table, jobs: int, most: int) -> _Table:
    """The table of so many jobs that are all like this one."""
    whole: _Table | None = None
    while True:
        if jobs % 2:
            whole = one if whole is None else _joined(whole, one, most)
        jobs //= 2
        if not jobs:
            assert whole is not None
            return whole
        one = _joined(one, one, most)


def _joined(left: _Table, right: _Table, most: int) -> _Table:
    """The table of the jobs of both, on up to `most` further devices."""
    long, short = (left.gains, right.gains) if len(left.gains) >= len(right.gains) else (right.gains, left.gains)
    size, reach = min(len(long) + len(short) - 1, most + 1), len(short)
    padding = np.full(reach - 1, -np.inf)
    padded = np.concatenate((padding, long, padding))[: size + reach - 1]
    best, at = np.empty(size), np.empty(size, np.int32)
    columns = max(1, _CELLS // reach)
    for begin in range(0, size, columns):
        end = min(size, begin + columns)
        best[begin:end], at[begin:end] = _best_sums(padded[begin : end + reach - 1], short[::-1])
    of_short = reach - 1 - at
    to_right = of_short if short is right.gains else np.arange(size, dtype=np.int32) - of_short
    return _Table(best, (left, right), to_right)


def _best_sums(values: Floats, others: Floats) -> tuple[Floats, npt.NDArray[np.intp]]:
    """For each i the greatest of values[i + t] + others[t] over t, and that t; whichever way numpy does it faster."""
    reach = len(others)
    step = values.itemsize
    windows: Floats = np.ndarray((len(values) - reach + 1, reach), values.dtype, values, 0, (step, step))
    if reach > _FEW:
        sums = windows + others
        at = sums.argmax(axis=1)
        return sums[np.arange(len(at)), at], at
    sums = np.add(windows.T, others[:, np.newaxis], order="C")
    best: Floats = sums.max(axis=0)
    return best, (sums == best).argmax(axis=0)


def _taken(table: _Table, devices: int) -> list[int]:
    """How many further devices each job of a table takes, in their order."""
    taken: list[int] = []
    open_ = [(table, devices)]
    while open_:
        table, devices = open_.pop()
        if table.parts is None or table.right is None:
            taken.append(devices)
        else:
            left, right = table.parts
            more = int(table.right[devices])
            open_ += [(right, more), (left, devices - more)]
    return taken
