"""The least that a job can cost at given prices: the seconds until its end, and its devices, restarts among them.

A path says when a job goes to which configuration. Each time it goes, the first time too, it holds the devices for a
restart before it trains, and pays for them; it may wait, and give all devices up, at any time. With the value v of its
whole work, the end e, and the pace g(c) in configuration c, the job costs at least

    e - arrival + v + least over paths of the integral of (price of its devices - v g(c) while it trains there),

whatever v is (weak duality): of all v, and of all shares phi that make paces of epochs (`Work`), that which tells most
counts, for each end by itself, and of all ends that which costs least.

For one v that integral is linear in each time at which the path changes, while neither that time nor the end of its
restart passes the begin of a slot, at which prices change. So some path of least cost changes at arrival, at begins of
slots, and a restart before them: all of these are multiples of `GRID`, as slots and restarts are. (A restart that is
cut short, or ends as the next begins, trained nothing: without it the path costs no more.) Between two multiples the
least integral is concave in the end, so that the lower of both bounds it there. Restarts are rounded down to the grid:
who restarts sooner can follow every path at no more cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fleet.scheduling.model.arrays import Counts, Flags, Floats

GRID = 25.0
"""Seconds; slots are multiples, and restarts are rounded down to it."""
_VALUES = np.concatenate(([0.0], np.geomspace(0.8, 30.0, 32)))  # of a job's work, in times that it takes alone
_LONGEST = 40.0  # times that it takes alone, within which ends are looked at
_EDGE = 1e-6  # of a step of the grid


@dataclass(frozen=True, eq=False)
class Work:
    """An application's whole training.

    Attributes:
        restart: seconds until its first step, and until it trains again wherever it goes.
        alone: seconds of all epochs, each in the configuration that is best for it.
        paces: parts of the whole a second in each configuration, by shares phi; shape (shares, configurations).
    """

    restart: float
    alone: float
    paces: Floats


@dataclass(frozen=True, eq=False)
class Prices:
    """What devices cost.

    Attributes:
        slot: seconds at one price.
        rents: of each configuration, a second; shape (slots, configurations).
        until: the same, added up until the begin of each slot; shape (slots + 1, configurations).
    """

    slot: float
    rents: Floats
    until: Floats

    @classmethod
    def of(cls, slot: float, rents: Floats) -> Prices:
        """With these rents."""
        return cls(slot, rents, np.vstack([np.zeros(rents.shape[1]), rents.cumsum(axis=0)]) * slot)

    def paid(self, begin: Floats, end: Floats) -> Floats:
        """What each configuration costs between these times; shape (jobs, configurations)."""
        return self._to(end) - self._to(begin)

    def _to(self, times: Floats) -> Floats:
        row = np.minimum((times / self.slot).astype(np.int64), len(self.rents) - 1)
        paid: Floats = self.until[row] + (times - row * self.slot)[:, np.newaxis] * self.rents[row]
        return paid


@dataclass(frozen=True, eq=False)
class Least:
    """What jobs cost at least.

    Attributes:
        cost: seconds, shape (jobs,).
        choice: the row of values and shares that told most; -1 where the end lies beyond all that were looked at.
        steps: of the grid until that end, from the first multiple at or after its arrival.
    """

    cost: Floats
    choice: Counts
    steps: Counts


class LeastPaths:
    """The least paths of jobs of one application.

    Args:
        work: theirs.
        arrivals: seconds; shape (jobs,).
        prices: of the configurations; slots are multiples of `GRID`.

    Raises:
        ValueError: a restart takes less than a step of the grid.
    """

    def __init__(self, work: Work, arrivals: Floats, prices: Prices) -> None:
        self.arrivals, self.prices = arrivals, prices
        self.lag = int(work.restart / GRID + _EDGE)
        if self.lag < 1:
            raise ValueError(f"a restart of {work.restart} s is shorter than a step of the grid, {GRID} s")
        self.first: Floats = np.ceil(arrivals / GRID - _EDGE) * GRID
        values = _VALUES * work.alone
        self._values = np.tile(values, len(work.paces))
        self._gains = (work.paces[:, np.newaxis] * values[:, np.newaxis]).reshape(-1, work.paces.shape[1])
        lasts = len(prices.rents) * prices.slot - float(self.first.max())
        self._most = int(min(_LONGEST * work.alone, lasts) / GRID)

    def least(self) -> Least:
        """Over all values, shares and ends."""
        walk, since = _Walk(self, self._gains[np.newaxis]), self.first - self.arrivals
        cost = np.full(len(since), np.inf)
        choice, steps = np.full(len(cost), -1), np.zeros(len(cost), dtype=np.int64)
        before = since[:, np.newaxis] + walk.least
        for step in range(1, self._most + 1):
            walk.on()
            told = (since + step * GRID)[:, np.newaxis] + walk.least
            lower = self._values + np.minimum(told, before)
            best, before = lower.argmax(axis=1), told
            most = lower[np.arange(len(best)), best]
            better = most < cost
            cost[better], choice[better], steps[better] = most[better], best[better], step
            if (since + step * GRID >= cost).all():
                return Least(cost, choice, steps)  # a later end costs more by itself
        beyond = since + self._most * GRID
        choice[cost > beyond] = -1
        return Least(np.minimum(cost, beyond), choice, steps)

    def used(self, least: Least) -> Floats:
        """Seconds in each configuration in each slot, of all jobs together; shape (slots, configurations)."""
        used, walk = np.zeros_like(self.prices.rents), _NotedWalk(self, self._gains[least.choice][:, np.newaxis])
        for _ in range(int(least.steps.max(initial=0))):
            walk.on()
        for job in np.flatnonzero(least.choice >= 0).tolist():
            for configuration, begin, end in walk.stays(job, int(least.steps[job])):
                _add(used[:, configuration], begin, end, self.prices.slot)
        return used


class _Walk:
    """The least integrals of all paths, from one multiple of the grid to the next.

    Args:
        paths: the jobs'.
        gains: v g(c); shape (jobs or 1, rows, configurations).

    Attributes:
        step: how far it is.
        least: of a path until now, wherever it is; shape (jobs, rows).
        there: of one that trains there now; shape (jobs, rows, configurations).
    """

    def __init__(self, paths: LeastPaths, gains: Floats) -> None:
        self._paths, self._gains = paths, GRID * gains
        self.step = 0
        self.there = np.full((len(paths.arrivals), *gains.shape[1:]), np.inf)
        self.least = np.zeros(self.there.shape[:2])
        self._last: deque[Floats] = deque([self.least], maxlen=paths.lag)

    def on(self) -> None:
        """To the next multiple."""
        paths, self.step = self._paths, self.step + 1
        time = paths.first + self.step * GRID
        self.there += paths.prices.paid(time - GRID, time)[:, np.newaxis]
        self.there -= self._gains
        if self.step == paths.lag:
            self._enter(self._at_once(time))
        if self.step >= paths.lag:
            rent = paths.prices.paid(time - paths.lag * GRID, time)
            self._enter(self._last[0][..., np.newaxis] + rent[:, np.newaxis])
        self.least = np.minimum(self.least, self.there.min(axis=2))
        self._last.append(self.least)

    def _at_once(self, time: Floats) -> Floats:
        """Of paths that begin at arrival, which is on no multiple, and so train a part of a step by now."""
        paths = self._paths
        trains = (paths.first - paths.arrivals)[:, np.newaxis, np.newaxis] / GRID
        return paths.prices.paid(paths.arrivals, time)[:, np.newaxis] - trains * self._gains

    def _enter(self, moved: Floats) -> None:
        """Paths whose restart is over now."""
        np.minimum(self.there, moved, out=self.there)


class _NotedWalk(_Walk):
    """Of one row, with notes of how paths came where they are."""

    def __init__(self, paths: LeastPaths, gains: Floats) -> None:
        super().__init__(paths, gains)
        self._came: list[Flags] = [np.zeros(self.there[:, 0].shape, dtype=np.bool_)]  # whether a restart ended there
        self._best: list[Counts] = [np.full(len(self.there), -1)]  # where the least path is; -1: as a step before

    def on(self) -> None:
        """As `_Walk.on`."""
        before = self.least
        self._came.append(np.zeros_like(self._came[0]))
        super().on()
        best = self.there[:, 0].argmin(axis=1)
        self._best.append(np.where(self.least[:, 0] < before[:, 0], best, -1))

    def _enter(self, moved: Floats) -> None:
        self._came[-1] |= (moved < self.there)[:, 0]
        super()._enter(moved)

    def stays(self, job: int, step: int) -> Iterator[tuple[int, float, float]]:
        """Configurations of the least path until a step, each with when its devices are taken and left."""
        first, lag = float(self._paths.first[job]), self._paths.lag
        while True:
            while step > 0 and self._best[step][job] < 0:
                step -= 1
            if step == 0:
                return
            configuration, end = int(self._best[step][job]), step
            while not self._came[step][job, configuration]:
                step -= 1
            step -= lag
            yield configuration, first + step * GRID, first + end * GRID


def _add(used: Floats, begin: float, end: float, slot: float) -> None:
    """Seconds between two times, put into their slots."""
    first, last = int(begin / slot), min(int(end / slot), len(used) - 1)
    used[first : last + 1] += slot
    used[first] -= begin - first * slot
    used[last] -= (last + 1) * slot - end
