"""Preprocessors that several lanes share: they fill them in turns, slot by slot, and pass by those that are full."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from fleet.scheduling.model.data_path import Feed


@dataclass(frozen=True)
class FedJob:
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

    A lane's readers pace each other: it wants d = min_j p_j g_j samples/s, where p_j is the pace of a reader and g_j
    the samples that go by for each of its own. Of the lane alone all preprocessors would make f samples/s. Since they
    take turns, lanes get what they want, or as many samples/s as any other lane,

        x_l = min(d_l, level),    sum_l x_l / f_l <= 1.

    Of data that are new, each sample is prepared for the first of K lanes that needs it, and kept for the others:
    1 / f = (1 / first + (K - 1) / later) / K.

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

    def most(self, demands: Iterable[FedJob], times: float = 1.0) -> dict[str, float]:
        """Own samples/s that each of these jobs is fed at most; infinite where preprocessors have time for its lane.

        Args:
            times: so much more is made, since trainers help.
        """
        demands = list(demands)
        fed = [(demand, self._feeds[demand.job]) for demand in demands if demand.job in self._feeds]
        wanted: dict[Hashable, float] = {}
        of_data: dict[str, set[Hashable]] = defaultdict(set)
        seconds: dict[Hashable, float] = {}
        for demand, feed in fed:
            wanted[demand.lane] = min(demand.pace * feed.passing, wanted.get(demand.lane, math.inf))
            of_data[feed.data].add(demand.lane)
        for demand, feed in fed:
            first = 1 / len(of_data[feed.data]) if self.is_new(demand.job) else 0.0
            seconds[demand.lane] = (first / feed.first + (1 - first) / feed.later) / times
        level = fair_level([(wanted[lane], seconds[lane]) for lane in wanted])
        most = {d.job: level / feed.passing if wanted[d.lane] > level else math.inf for d, feed in fed}
        return {demand.job: most.get(demand.job, math.inf) for demand in demands}


def fair_level(lanes: Iterable[tuple[float, float]]) -> float:
    """Return the most samples/s that a lane gets, so that all get what they want up to it; infinite: all get all.

    Args:
        lanes: samples/s that each wants, and seconds that preprocessors need for one of its samples.
    """
    ascending = sorted(lanes)
    left, seconds = 1.0, math.fsum(each for _, each in ascending)
    for wanted, each in ascending:
        if wanted * seconds > left:
            return left / seconds
        left, seconds = left - wanted * each, seconds - each
    return math.inf
