"""How likely a trial is among the best of all that will come to its rung, when some have come."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fleet.search.stopping.ranking import Ranking

NEARLY_SURE = 0.99
_FAR = 12
"""Standard deviations from the likeliest number of the best to those that count for nothing."""


def chance_of_best(rank: int, known: int, size: int, quota: int) -> float:
    """The probability that a trial is among the best of its rung, if those that have come are as any others.

    It is better than all but `rank` of n = `known` trials, which stand for a random sample of the N = `size` that will
    be there. It is among the best q = `quota` of all just if the sample has more than `rank` of these, and their number
    X is hypergeometric:

        P(X > rank),    P(X = x) = C(q, x) C(N - q, n - x) / C(N, n).

    All terms are found from the likeliest one by the ratios of neighbours, in turn, and their sum is rounded once: so
    every machine finds the same bits.

    Args:
        rank: how many known trials are better.
        known: of how many it is one, 1 or more.
        size: how many there will be; where there are more already, as many as there are.
        quota: how many of these are the best.
    """
    size = max(size, known)
    least, most = max(0, known - (size - quota)), min(known, quota)
    if not least <= rank < most:
        return float(rank < least)
    mode = min(most, max(least, (known + 1) * (quota + 1) // (size + 2)))
    reach = _FAR + int(_FAR * math.sqrt(known * quota / size))  # beyond which no term counts
    up = np.arange(mode, min(most, mode + reach))
    down = np.arange(mode - 1, max(least, mode - reach) - 1, -1)

    def ratio(x: np.ndarray) -> np.ndarray:
        """P(X = x + 1) / P(X = x)."""
        return (quota - x) * (known - x) / ((x + 1) * (size - quota - known + x + 1))

    weights = [*np.cumprod(1 / ratio(down)).tolist()[::-1], 1.0, *np.cumprod(ratio(up)).tolist()]
    above = rank + 1 - (mode - len(down))
    return math.fsum(weights[max(0, above) :]) / math.fsum(weights)


class LikelyRanks:
    """How many of those at a rung are this likely to be among its best; kept as more come, which makes it no less.

    Args:
        eta: of how many trials one goes on from a rung; so one of eta^l comes to level l.
        chance: what is likely enough.
    """

    def __init__(self, eta: int, chance: float) -> None:
        self._eta, self._chance = eta, chance
        self._found: dict[int, tuple[int, int, int]] = {}  # level -> of how many trials, and those known: how many

    def of(self, level: int, known: int, trials: int) -> int:
        """How many of the best are.

        Args:
            level: of the rung.
            known: how many have come there.
            trials: how many there will be in all.
        """
        of, before, found = self._found.get(level, (trials, 0, 0))
        if of != trials or known < before:
            before, found = 0, 0
        if known > before:
            size = trials // self._eta**level
            while found < known and chance_of_best(found, known, size, size // self._eta) >= self._chance:
                found += 1
            self._found[level] = trials, known, found
        return found


class Probable:
    """Which trials will very likely go on, by those that have arrived at each rung, whether they have gone on or not.

    From the first rung goes on who is nearly sure to be among the best, as a new trial could be trained instead. Above
    it, where few come, goes on who is promising: likelier to than one of which nobody knows anything, at each rung. So
    the best trains further while others are looked at.

    Args:
        rungs: as they are filled.
        eta: of how many trials one goes on from a rung.
    """

    def __init__(self, rungs: Sequence[Ranking], eta: int) -> None:
        self._rungs = rungs
        self._nearly_sure, self._promising = LikelyRanks(eta, NEARLY_SURE), LikelyRanks(eta, 1 / eta)

    def onward(self, trials: int) -> Iterator[tuple[int, int]]:
        """Trials, and from which level they go on, the highest first.

        Args:
            trials: how many there will be.
        """
        for level in reversed(range(len(self._rungs) - 1)):
            ranks = self._promising if level else self._nearly_sure
            for trial in self._rungs[level].best_left(ranks.of(level, len(self._rungs[level]), trials)):
                if not level or self.is_promising(trial, level - 1, trials):
                    yield trial, level

    def is_promising(self, trial: int, level: int, trials: int) -> bool:
        """Whether a trial is, at the rung of this level and at all below."""
        for lower, rung in enumerate(self._rungs[: level + 1]):
            if not rung.has(trial) or rung.rank(trial) >= self._promising.of(lower, len(rung), trials):
                return False
        return True
