"""Finish-time fairness (Themis: Mahajan et al., NSDI'20, section 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.rates import RateCurve


def finish_time_fairness(
    arrival: Floats, end: Floats, samples: Floats, curves: Sequence[RateCurve | None], limits: Counts, devices: int
) -> Floats:
    """rho = T_SH / T_ID of each job: above 1 it had been better off with its share of the cluster for itself alone.

    T_SH is the time from arrival to end. T_ID is what its samples take on M / N devices, at least one and at most its
    limit: M of the cluster, N the mean number of unfinished jobs while it was there.

    Args:
        arrival, end: seconds; `end` is NaN where a job was never done.
        samples: samples of each job.
        curves: rate curve of each job; None where it never arrived.
        limits: most devices of each job.
        devices: M.

    Returns:
        float64 of shape (jobs,), NaN where a job was never done.
    """
    fairness = np.full(len(arrival), np.nan)
    done = np.flatnonzero(~np.isnan(end))
    if len(done):
        shared = end[done] - arrival[done]
        others = np.maximum(1.0, _contention(arrival[done], end[done]))
        share = np.clip((devices / others).astype(np.int64), 1, np.maximum(1, limits[done]))
        alone = samples[done] / _rates([curves[row] for row in done.tolist()], share)
        fairness[done] = shared / alone
    return fairness


def _contention(arrival: Floats, end: Floats) -> Floats:
    """The mean number of these jobs that were there during each one's time; shape (jobs,)."""
    time = end - arrival
    present = _passed(end, arrival) - _passed(arrival, arrival) - _passed(end, end) + _passed(arrival, end)
    return np.divide(present, time, out=np.ones_like(time), where=time > 0)


def _passed(times: Floats, since: Floats) -> Floats:
    """For each of `times` the sum over all of `since` of the seconds that have passed since then."""
    ordered = np.sort(since)
    before = np.searchsorted(ordered, times, side="right")
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    passed: Floats = before * times - sums[before]
    return passed


def _rates(curves: Sequence[RateCurve | None], counts: Counts) -> Floats:
    """r(count) of each job, samples/s; a curve that many jobs have is looked up once."""
    rates = np.full(len(curves), np.nan)
    rows: dict[int, list[int]] = {}
    for row, curve in enumerate(curves):
        rows.setdefault(id(curve), []).append(row)
    for same in rows.values():
        curve = curves[same[0]]
        if curve is not None:
            rates[same] = curve.rates(int(counts[same].max()))[counts[same] - 1]
    return rates
