"""Rankings at a rung, and how likely a trial is among the best of all that will come there, when some have come."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import numpy as np


class Ranking:
    """Trials by their loss at one epoch, and which of them have not gone on. Of equal ones the earlier trial is better.

    A trial that failed counts, comes last and never goes on.
    """

    def __init__(self) -> None:
        self._all: list[tuple[float, int]] = []
        self._left: list[tuple[float, int]] = []
        self._losses: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, trial: int, loss: float | None) -> None:
        """Put a trial in, once."""
        entry = (math.inf if loss is None else loss, trial)
        insort(self._all, entry)
        self._losses[trial] = entry[0]
        if loss is not None:
            insort(self._left, entry)

    def take(self, trial: int) -> None:
        """Let a trial go on, if it is there."""
        entry = (self._losses.get(trial, math.inf), trial)
        place = bisect_left(self._left, entry)
        if self._left[place : place + 1] == [entry]:
            del self._left[place]

    def has(self, trial: int) -> bool:
        """Whether a trial is there."""
        return trial in self._losses

    def rank(self, trial: int, loss: float | None = None) -> int:
        """How many are better than a trial, here with its loss, or one of a loss that is not; no end if it failed."""
        value = self._losses[trial] if loss is None else loss
        return bisect_left(self._all, (value, trial)) if value < math.inf else sys.maxsize

    def count_left(self, quota: int) -> int:
        """How many of the best `quota` have not gone on."""
        return bisect_left(self._left, self._all[quota]) if quota < len(self._all) else len(self._left)

    def not_failed(self) -> Iterator[int]:
        """The trials that have not failed, best first, whether they have gone on or not."""
        return (trial for loss, trial in self._all if loss < math.inf)

    def best_left(self, quota: int) -> Iterator[int]:
        """The trials among the best `quota` that have not gone on, best first."""
        for entry in self._left:
            if bisect_left(self._all, entry) >= quota:
                return
            yield entry[1]


NEARLY_SURE = 0.99
"""The chance with which a trial goes on from the first rung before new ones begin."""
LIKELY = 0.5
"""That with which it does from the rungs above."""
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
    least, most = _bounds(known, max(size, known), quota)
    if not least <= rank < most:
        return float(rank < least)
    first, weights = _weights(known, max(size, known), quota)
    return math.fsum(weights[max(0, rank + 1 - first) :]) / math.fsum(weights)


def chances_by_rank(known: int, size: int, quota: int) -> np.ndarray:
    """`chance_of_best` of each of the known trials, the best first, but for the last bits: an array of float64."""
    first, weights = _weights(known, max(size, known), quota)
    above = np.append(np.cumsum(weights[::-1])[::-1] / sum(weights), 0.0)  # P(X >= first + i)
    chances: np.ndarray = above[np.clip(np.arange(1, known + 1) - first, 0, len(weights))]
    return chances


def _bounds(known: int, size: int, quota: int) -> tuple[int, int]:
    """The least and the most of the best that can be known."""
    return max(0, known - (size - quota)), min(known, quota)


def _weights(known: int, size: int, quota: int) -> tuple[int, list[float]]:
    """The least number of the best that counts, and how likely it and each further one is, the likeliest 1."""
    least, most = _bounds(known, size, quota)
    mode = min(most, max(least, (known + 1) * (quota + 1) // (size + 2)))
    reach = _FAR + int(_FAR * math.sqrt(known * quota / size))  # beyond which no term counts
    up = np.arange(mode, min(most, mode + reach))
    down = np.arange(mode - 1, max(least, mode - reach) - 1, -1)

    def ratio(x: np.ndarray) -> np.ndarray:
        """P(X = x + 1) / P(X = x)."""
        return (quota - x) * (known - x) / ((x + 1) * (size - quota - known + x + 1))

    weights = [*np.cumprod(1 / ratio(down)).tolist()[::-1], 1.0, *np.cumprod(ratio(up)).tolist()]
    return mode - len(down), weights


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
    it, where few come, goes on who is likely to by what all rungs tell. So the best trains further while others are
    looked at.

    Of N trials N / eta^(m + 1) go on from a rung m. p_l is the chance that a trial is one of so many best by what has
    come to a rung l (`chance_of_best`). Each tells something, and that of a rung to which few have come tells little.
    So the chance to go on is taken to be their geometric mean,

        (p_0 p_1 ... p_m)^(1 / (m + 1)).

    Args:
        rungs: as they are filled.
        eta: of how many trials one goes on from a rung.
    """

    def __init__(self, rungs: Sequence[Ranking], eta: int) -> None:
        self._rungs, self._eta = rungs, eta
        self._nearly_sure = LikelyRanks(eta, NEARLY_SURE)
        self._chances: dict[tuple[int, int], tuple[int, int, np.ndarray]] = {}  # see `_chances_at`

    def onward(self, trials: int) -> Iterator[tuple[int, int]]:
        """Trials, and from which level they go on, the highest first.

        Args:
            trials: how many there will be.
        """
        for level in reversed(range(1, len(self._rungs) - 1)):
            for trial in self._rungs[level].best_left(len(self._rungs[level])):
                if self.chance(trial, level, trials) < LIKELY:
                    break  # those behind it have less of a chance at this rung
                yield trial, level
        if len(self._rungs) > 1:
            for trial in self._rungs[0].best_left(self._nearly_sure.of(0, len(self._rungs[0]), trials)):
                yield trial, 0

    def is_promising(self, trial: int, level: int, trials: int) -> bool:
        """Whether a trial is as likely to go on from a level as one of which nobody knows anything, or likelier."""
        return self.chance(trial, level, trials) >= 1 / self._eta

    def chance(self, trial: int, level: int, trials: int) -> float:
        """How likely a trial is to go on from a level; 0 where it has not come there, or failed."""
        product = 1.0
        for lower, rung in enumerate(self._rungs[: level + 1]):
            rank = rung.rank(trial) if rung.has(trial) else len(rung)
            product *= float(self._chances_at(lower, level, trials)[rank]) if rank < len(rung) else 0.0
        return product ** (1 / (level + 1))

    def _chances_at(self, lower: int, level: int, trials: int) -> np.ndarray:
        """p_lower of each trial, the best first, for going on from a level; kept until more come."""
        known = len(self._rungs[lower])
        of, before, chances = self._chances.get((lower, level), (trials, 0, np.empty(0)))
        if (of, before) != (trials, known):
            chances = chances_by_rank(known, trials // self._eta**lower, trials // self._eta ** (level + 1))
            self._chances[lower, level] = trials, known, chances
        return chances
