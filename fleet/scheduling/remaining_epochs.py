"""How long a job still trains: from its loss curve, or from how long jobs like it train on average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from fleet.scheduling.job_state import JobState
from fleet.scheduling.rates import Floats

ASSUMED_EPOCHS = 30.0
"""Of a job of which nothing is known."""
SPREAD = 0.4
"""Standard deviation of the logarithm of a job's epochs, where the mean alone is known."""
FLAT = 0.002
"""A loss curve has converged once an epoch lowers it by less than this part of what it fell in all."""
FEWEST_LOSSES = 5
"""With fewer a curve cannot be told from noise."""
_FARTHEST = 8.0  # in means; beyond it a job needs as much more as there
_LEAST = 1e-6  # epochs


def remaining_samples(jobs: Sequence[JobState], now: float, mean_epochs: float | None) -> Floats:
    """Samples that each job is expected to train yet, above 0; shape (jobs,).

    Args:
        mean_epochs: of the jobs' whole training. None: what `JobState.remaining` says is taken, where it says
            anything; a number: it is not looked at, and a job is known by its losses and by what it has trained.
    """
    known = np.array([job.remaining_at(now) for job in jobs])
    blind = ~np.isfinite(known) if mean_epochs is None else np.ones(len(jobs), bool)
    if blind.any():
        unknown = [job for job, is_blind in zip(jobs, blind.tolist()) if is_blind]
        known[blind] = _expected(unknown, now, ASSUMED_EPOCHS if mean_epochs is None else mean_epochs)
    least: Floats = np.maximum(known, _LEAST)
    return least


def residual_epochs(trained: Floats, mean: float, spread: float = SPREAD) -> Floats:
    """Epochs that a job which has not converged after `trained` ones still needs on average.

    The epochs E of a job are log-normal, with that mean and with standard deviation `spread` of the logarithm: it is
    E[E - e | E > e], shape and unit as `trained`.
    """
    places, values = _residual_table(spread)
    epochs: Floats = mean * np.interp(trained / mean, places, values)
    return epochs


def epochs_from_losses(losses: Sequence[float], flat: float = FLAT) -> float | None:
    """Epochs until a loss curve is flat: l(k) = 1 / (a k + b) + c, fitted as in Optimus (EuroSys'18, 3.1).

    For each of some c below the least loss, a and b are the least squares of 1 / (l - c) over k; the c whose curve is
    nearest to the losses is taken. The curve is flat where -l'(k) is below `flat` of l(0) - c.

    Returns:
        None: the curve does not fall, or is too short to tell.
    """
    if len(losses) < FEWEST_LOSSES or not np.isfinite(losses).all():
        return None
    curve = np.array(losses, dtype=np.float64)
    place = np.arange(1.0, len(curve) + 1)
    lowest, span = float(curve.min()), float(curve.max() - curve.min())
    if not span > 0:
        return None
    found: tuple[float, float, float] | None = None
    nearest = math.inf
    for part in np.geomspace(0.01, 10.0, 25).tolist():
        slope, start = np.polyfit(place, 1 / (curve - lowest + part * span), 1, w=curve - lowest + part * span)
        if slope <= 0 or slope + start <= 0:
            continue
        error = float(np.square(1 / (slope * place + start) + lowest - part * span - curve).sum())
        if error < nearest:
            nearest, found = error, (float(slope), float(start), part)
    if found is None:
        return None
    slope, start, _ = found
    whole = 1 / (slope + start)  # l(1) - c
    last = (math.sqrt(slope / (flat * whole)) - start) / slope  # a / (a k + b)^2 = flat (l(1) - c)
    return max(0.0, last - len(curve))


def _expected(jobs: Sequence[JobState], now: float, mean: float) -> Floats:
    size = np.array([job.epoch or 1.0 for job in jobs])
    trained = np.array([job.trained_at(now) if job.epoch else float(job.epochs) for job in jobs]) / size
    epochs = residual_epochs(trained, mean)
    for index, job in enumerate(jobs):
        told = epochs_from_losses(job.losses) if job.losses else None
        if told is not None:
            epochs[index] = max(1.0, told - (trained[index] - len(job.losses)))
    return epochs * size


@lru_cache(maxsize=8)
def _residual_table(spread: float) -> tuple[Floats, Floats]:
    """e / mean and E[E - e | E > e] / mean."""
    places = np.linspace(0.0, _FARTHEST, 801)
    middle = -spread * spread / 2  # of ln(E / mean)
    values = [1.0]
    for place in places[1:].tolist():
        z = (math.log(place) - middle) / spread
        values.append(_above(z - spread) / _above(z) - place)
    return places, np.array(values)


def _above(z: float) -> float:
    """P(Z > z) of a standard normal Z."""
    return 0.5 * math.erfc(z / math.sqrt(2))
