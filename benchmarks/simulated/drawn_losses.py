"""Loss curves drawn at random, for trainings that end once their loss is flat.

They fall as l(k) = c + (1 + k / tau)^-p + noise, from c + 1, and are as hard to foretell as the curves that Pollux
(OSDI'21) measured: `epochs_from_losses` is off by as much, and to the same side.
"""

from __future__ import annotations

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.simulator.traces.synthetic import generator

_POWERS = (0.5, 1.5)  # bounds of p, drawn evenly
_FLOORS = (0.05, 0.3)  # bounds of c, drawn evenly
_NOISE = 0.015  # standard deviation of what is added to each epoch
_PATIENCE = 5  # epochs
_LEAST = 0.01  # of what the loss fell in all
_TRIES = 64
_SCALES = np.geomspace(0.01, 30.0, 256)  # tau, in epochs of the training


def flat_after(losses: Floats) -> Floats:
    """The epoch, from 1, at which each curve is flat: 5 epochs lowered the best by less than 1 % of what it fell.

    Args:
        losses: one an epoch; shape (..., epochs).

    Returns:
        Infinite where a curve falls to its end; shape (...).
    """
    best = np.minimum.accumulate(losses, axis=-1)
    gained, fell = best[..., :-_PATIENCE] - best[..., _PATIENCE:], losses[..., :1] - best[..., _PATIENCE:]
    flat = gained < _LEAST * fell
    epochs: Floats = np.where(flat.any(axis=-1), flat.argmax(axis=-1) + _PATIENCE + 1.0, np.inf)
    return epochs


def drawn_losses(epochs: int, seed: int, name: str) -> tuple[float, ...]:
    """The losses of a training that ends after so many epochs, because its loss is flat then.

    tau is such that it is. Where no tau does it the noise is drawn again; where it never comes to that, as with fewer
    than 6 epochs, the curve that is flat nearest to its end is taken.

    Seed path: (seed, "losses NAME").
    """
    random = generator(seed, f"losses {name}")
    power, floor = random.uniform(*_POWERS), random.uniform(*_FLOORS)
    smooth = floor + (1 + np.arange(1.0, epochs + 1) / (epochs * _SCALES[:, None])) ** -power
    found, nearest = smooth[0], np.inf
    for _ in range(_TRIES):
        curves = smooth + _NOISE * random.standard_normal(epochs)
        missed = np.abs(np.minimum(flat_after(curves), epochs + 1.0) - epochs) if epochs > _PATIENCE else np.zeros(1)
        if missed.min() < nearest:
            alike = np.flatnonzero(missed == missed.min())
            found, nearest = curves[alike[len(alike) // 2]], missed.min()
        if not nearest:
            break
    return tuple(found.tolist())
