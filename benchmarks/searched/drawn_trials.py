"""Trials drawn at random: how their losses fall, what an epoch costs, and what it was thought to cost."""

from __future__ import annotations

import numpy as np

RUNGS = (1, 3, 9, 27)
ETA = 3
UNIT = 1_000_000  # virtual cost of an epoch that costs 1
_SPREAD = 0.5  # log-sd of the costs of an epoch, of one trial to another


class DrawnTrials:
    """Losses a + b e^-c + noise after e epochs, drawn by seed path (seed, 7).

    An epoch costs what it was thought to cost, log-normal with mean 1, times an error that is log-normal, too.

    Args:
        seed: of all draws.
        count: how many trials.
        error: log-sd by which costs are wrong.
    """

    def __init__(self, seed: int, count: int, error: float) -> None:
        draw = np.random.default_rng([seed, 7])
        place = draw.random((count, 4))
        end = 0.1 + 0.6 * ((place - 0.4) ** 2).sum(axis=1) ** 0.8 + 0.02 * draw.standard_normal(count) ** 2
        power, height = 0.3 + 0.9 * place[:, 1], 0.6 * (0.3 + 1.2 * draw.random(count))
        epochs = np.arange(1, RUNGS[-1] + 1)
        losses = end[:, None] + height[:, None] * epochs ** -power[:, None]
        self._losses = (losses + 0.01 * draw.standard_normal(losses.shape)).tolist()
        thought = np.exp(_SPREAD * draw.standard_normal(count) - _SPREAD**2 / 2)
        real = thought * np.exp(error * draw.standard_normal(count) - error**2 / 2)
        self.count = count
        self.costs: list[int] = np.maximum(1, np.rint(UNIT * thought)).astype(int).tolist()
        self.seconds: list[float] = real.tolist()

    def loss(self, trial: int, epoch: int) -> float:
        """The loss after so many epochs, from 1."""
        return float(self._losses[trial][epoch - 1])
