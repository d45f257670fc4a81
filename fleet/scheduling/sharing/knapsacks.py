"""What fits on the devices: fractional knapsacks, many at once."""

from __future__ import annotations

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats

NEVER = 1 << 40
"""Devices that a job needs for a pace that it cannot keep."""
_ROUNDING = 1e-12


def knapsacks(gains: Floats, counts: Counts, devices: int) -> tuple[Floats, Floats]:
    """The most that jobs bring on the devices, if each may be there in part.

    Args:
        gains: each job's gains, by (knapsack, job).
        counts: devices that it needs, 1 or more, by (knapsack, job).

    Returns:
        The value of each knapsack, and the part of each job in it, by (knapsack, job).
    """
    order = np.argsort(-gains / counts, axis=1, kind="stable")
    taken = np.take_along_axis(counts, order, 1)
    before = np.cumsum(taken, axis=1) - taken
    parts = np.empty_like(gains)
    np.put_along_axis(parts, order, np.clip((devices - before) / taken, 0.0, 1.0), 1)
    values: Floats = (gains * parts).sum(axis=1)
    return values, parts


def fewest_devices(row: tuple[Counts, Floats], paces: Floats) -> Counts:
    """The fewest devices on which a job keeps each pace; `row`: its useful counts and the rates at them."""
    counts, rates = row
    place = np.searchsorted(rates, paces * (1 - _ROUNDING))
    return np.where(place < len(counts), counts[np.minimum(place, len(counts) - 1)], NEVER)
