"""Preprocessors that several streams share: each is filled in its turn, so all get as much of their time as they need,
or as much as any other.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from fleet.scheduling.model.data_path import Feed


@dataclass(frozen=True)
class Demand:
    """A job that trains.

    Attributes:
        job: its name.
        lane: equal for those that read together.
        pace: own samples/s that it would train if none of them were late.
    """

    job: str
    lane: Hashable
    pace: float


class SharedPreprocessors:
    """Says how fast each job is fed while others read, too, and what is kept of their data by then.

    A lane whose readers go at paces p_j, and for which all preprocessors alone would make f_j own samples/s of each,
    needs the part u = min_j p_j / f_j of their time, as its readers pace each other. The parts that are given, x, are
    fair: the smallest is as large as can be, then the next one (max-min fairness),

        x_l = min(u_l, level),    sum_l x_l <= 1.

    Args:
        feeds: by job; one that has none is fed as fast as it trains, and takes no time of theirs.
    """

    def __init__(self, feeds: Mapping[str, Feed]) -> None:
        self._feeds = feeds
        self._kept: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._feeds)

    def is_new(self, job: str) -> bool:
        """Whether nothing is kept yet of what the job reads, and that makes a difference."""
        feed = self._feeds.get(job)
        return feed is not None and feed.first < feed.later and feed.data not in self._kept

    def prepared(self, job: str) -> None:
        """A job has read an epoch of its data: what there is room for is kept from now on."""
        self._kept.add(self._feeds[job].data)

    def most(self, demands: Iterable[Demand]) -> dict[str, float]:
        """Own samples/s that each of these jobs is fed at most; infinite where preprocessors have time for its lane."""
        known = [(demand, self._made(demand.job)) for demand in demands]
        needs: dict[Hashable, float] = {}
        for demand, made in known:
            need = demand.pace / made
            needs[demand.lane] = min(need, needs.get(demand.lane, math.inf))
        level = fair_level(needs.values())
        return {demand.job: math.inf if needs[demand.lane] <= level else level * made for demand, made in known}

    def _made(self, job: str) -> float:
        """Own samples/s that all preprocessors make of what the job reads, if they make nothing else."""
        feed = self._feeds.get(job)
        if feed is None:
            return math.inf
        return feed.first if self.is_new(job) else feed.later


def fair_level(needs: Iterable[float]) -> float:
    """Return the most that anybody is given of 1, so that all get their needs up to it; infinite: all get theirs."""
    ascending = sorted(needs)
    left = 1.0
    for index, need in enumerate(ascending):
        share = left / (len(ascending) - index)
        if need > share:
            return share
        left -= need
    return math.inf
