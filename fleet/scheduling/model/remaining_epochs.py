"""How long a job still trains: from its loss curve, or from how long jobs like it train on average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.jobs import JobState

ASSUMED_EPOCHS = 30.0
"""Epochs of a job about which nothing is known."""
SPREAD = 0.4
"""Standard deviation of the logarithm of a job's epochs, where the mean alone is known."""
FLAT = 0.004
"""A loss curve has converged once an epoch lowers it by less than this part of what it fell in all."""
FEWEST_LOSSES = 5
"""With fewer a curve cannot be told from noise."""
_CURVE_SPREAD = 0.2  # deviation of ln E by the curves that Pollux (OSDI'21) measured; the shorter the more
_FARTHEST = 8.0  # in means; beyond it a job needs as much more as there
_LEAST = 1e-6  # epochs
_FLOORS = np.geomspace(0.01, 10.0, 25)  # how far below the least loss, in falls, the floor c of a curve may lie


def remaining_samples(jobs: Sequence[JobState], now: float, mean_epochs: float | None) -> Floats:
    """Samples that each job is expected to train yet, above 0; shape (jobs,).

    Args:
        mean_epochs: mean of the jobs' whole training. None: `JobState.remaining` is taken, where it says
            anything; a number: it does not count, and a job is known by its losses and by how much it has trained.
    """
    known = _remaining_at(jobs, now)
    blind = ~np.isfinite(known) if mean_epochs is None else np.ones(len(jobs), bool)
    if blind.any():
        unknown = [job for job, is_blind in zip(jobs, blind.tolist()) if is_blind]
        known[blind] = _expected(unknown, now, mean_epochs)
    least: Floats = np.maximum(known, _LEAST)
    return least


def _remaining_at(jobs: Sequence[JobState], now: float) -> Floats:
    """`JobState.remaining_at` of each."""
    left = np.array([job.remaining for job in jobs])
    ready = np.array([job.ready for job in jobs])
    pace = np.array([job.pace for job in jobs])
    least = np.array([job.least for job in jobs])
    remaining: Floats = np.maximum(left - pace * np.maximum(0.0, now - ready), np.minimum(least, left))
    return remaining


def residual_epochs(trained: Floats, mean: float, spread: float = SPREAD) -> Floats:
    """Epochs that a job which has not converged after `trained` ones still needs on average.

    The epochs E of a job are log-normal, with that mean and with standard deviation `spread` of the logarithm: it is
    E[E - e | E > e], shape and unit as `trained`.
    """
    places, values = _residual_table(spread)
    epochs: Floats = mean * np.interp(trained / mean, places, values)
    return epochs


@lru_cache(maxsize=4096)
def epochs_from_losses(losses: tuple[float, ...], flat: float = FLAT) -> float | None:
    """Epochs until a loss curve is flat: l(k) = 1 / (a k + b) + c, fitted as in Optimus (EuroSys'18, 3.1).

    For each of some c below the least loss, a and b are the least squares of 1 / (l - c) over k, each weighted by
    l - c; the c whose curve is nearest to the losses is taken. The curve is flat where -l'(k) is below `flat` of
    l(1) - c.

    Returns:
        None: the curve does not fall, or is too short to tell.
    """
    if len(losses) < FEWEST_LOSSES or not np.isfinite(losses).all():
        return None
    curve, place = np.array(losses, dtype=np.float64), np.arange(1.0, len(losses) + 1)
    span = float(np.ptp(curve))
    if not span > 0:
        return None
    floors = curve.min() - _FLOORS[:, None] * span  # one row for each c
    above = curve - floors
    slope, start = _least_squares(above * place, above)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.square(1 / (slope * place + start) + floors - curve).sum(axis=1)
    error[(slope <= 0).ravel() | (slope + start <= 0).ravel()] = math.inf
    nearest = int(error.argmin())
    if not error[nearest] < math.inf:
        return None
    a, b = slope.item(nearest), start.item(nearest)
    last = (math.sqrt(a / flat * (a + b)) - b) / a  # a / (a k + b)^2 = flat / (a + b)
    return max(0.0, last - len(losses))


def _least_squares(x: Floats, w: Floats) -> tuple[Floats, Floats]:
    """a and b with the least sum (1 - a x - b w)^2 of each row; shape (rows, 1)."""
    xx, xw, ww = (np.einsum("ij,ij->i", left, right) for left, right in ((x, x), (x, w), (w, w)))
    x1, w1 = x.sum(axis=1), w.sum(axis=1)
    whole = xx * ww - xw * xw
    return ((x1 * ww - w1 * xw) / whole)[:, None], ((w1 * xx - x1 * xw) / whole)[:, None]


def _expected(jobs: Sequence[JobState], now: float, mean: float | None) -> Floats:
    size = np.array([job.epoch or 1.0 for job in jobs])
    trained = np.array([job.trained_at(now) if job.epoch else float(job.epochs) for job in jobs]) / size
    epochs = residual_epochs(trained, ASSUMED_EPOCHS if mean is None else mean)
    for index, job in enumerate(jobs):
        left = epochs_from_losses(job.losses) if job.losses else None
        if left is not None:
            epochs[index] = _by_both(len(job.losses), left, float(trained[index]), mean)
    return epochs * size


def _by_both(seen: int, left: float, trained: float, mean: float | None) -> float:
    """E[E - e | E > e] where a curve of so many losses tells that so many epochs are left, and the mean is known too.

    Of two normal estimates of ln E each counts by the inverse of its variance.
    """
    spread = _CURVE_SPREAD + 1 / seen
    weight, middle = 1 / spread**2, math.log(seen + left)
    if mean is not None:
        prior = 1 / SPREAD**2
        middle = (weight * middle + prior * (math.log(mean) - SPREAD**2 / 2)) / (weight + prior)
        weight += prior
    spread = 1 / math.sqrt(weight)
    expected = math.exp(middle + spread**2 / 2)
    return expected * _residual(min(trained / expected, _FARTHEST), spread)


@lru_cache(maxsize=8)
def _residual_table(spread: float) -> tuple[Floats, Floats]:
    """e / mean and E[E - e | E > e] / mean."""
    places = np.linspace(0.0, _FARTHEST, 801)
    return places, np.array([_residual(place, spread) for place in places.tolist()])


def _residual(place: float, spread: float) -> float:
    """E[E - e | E > e] / mean where e / mean is `place`."""
    if place <= 0:
        return 1.0
    z = (math.log(place) + spread * spread / 2) / spread
    return _above(z - spread) / _above(z) - place


def _above(z: float) -> float:
    """P(Z > z) of a standard normal Z."""
    return 0.5 * math.erfc(z / math.sqrt(2))
