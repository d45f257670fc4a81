"""Lanes, whose jobs pace each other (FLEET, MLSys'20, 4.3.1), and the preprocessors that lanes share."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fleet.scheduling.model.arrays import Flags, Floats
from fleet.scheduling.model.data_path import Feed

_ROUNDING = 1e-6  # samples


class LaneJob(NamedTuple):
    """A job of a lane.

    Attributes:
        rate: samples/s that it could read.
        samples: what it still reads.
        ahead: samples that lie between the first of the lane and the first that it needs.
    """

    rate: float
    samples: float
    ahead: float = 0.0


class ReaderPosition(NamedTuple):
    """Where a job stands: samples that it has still to read, and when it will have, seconds."""

    samples: float
    end: float


class SimulatedLane:
    """Jobs that began together to read the same samples.

    A sample stays in the buffer until everybody has read it. So a job goes at its own rate until it is `slack` samples
    ahead of the last one, and then as fast as that one. With positions x and rates r at `since`, dt seconds later

        the last one is at  L(dt) = min_j (x_j + r_j dt),   and job i at  min(x_i + r_i dt, L(dt) + slack).

    L is concave: a job that was held up once is held up until another leaves. A job that begins further ahead than that
    waits until the last one has come near enough.

    Args:
        readers: by name of the job; one or more.
        since: when they begin, seconds.
        slack: samples that a job may be ahead; 0: lockstep.
    """

    def __init__(self, readers: Mapping[str, LaneJob], since: float = 0.0, slack: float = 0.0) -> None:
        self.jobs = tuple(readers)
        self.since, self.slack = since, slack
        self._rates: Floats = np.array([reader.rate for reader in readers.values()])
        self._read: Floats = np.array([reader.ahead for reader in readers.values()])
        self._targets: Floats = self._read + np.array([reader.samples for reader in readers.values()])
        self._waits: Floats = self._until_near()

    def __len__(self) -> int:
        return len(self.jobs)

    def readings(self) -> dict[str, ReaderPosition]:
        """Where each job stands at `since`."""
        left, ends = self._targets - self._read, self.since + self._seconds()
        return {job: ReaderPosition(*found) for job, found in zip(self.jobs, zip(left.tolist(), ends.tolist()))}

    def leave(self, jobs: Collection[str], now: float) -> dict[str, float]:
        """These jobs read no more; return what each had still to read. The others stand where they are."""
        self._read, self.since = self._read_by(now), max(now, self.since)
        left = self._targets - self._read
        stays: Flags = np.array([job not in jobs for job in self.jobs], dtype=bool)
        gone = {job: max(0.0, float(left[index])) for index, job in enumerate(self.jobs) if not stays[index]}
        self.jobs = tuple(job for job, stay in zip(self.jobs, stays) if stay)
        self._rates, self._targets, self._read = self._rates[stays], self._targets[stays], self._read[stays]
        self._waits = self._until_near()
        return gone

    def goes_at(self, rates: Mapping[str, float]) -> bool:
        """Whether all its jobs read at these rates already."""
        return all(math.isclose(rate, rates.get(job, rate)) for job, rate in zip(self.jobs, self._rates.tolist()))

    def repace(self, rates: Mapping[str, float], now: float) -> None:
        """These jobs read at other rates from now on, samples/s."""
        self._read, self.since = self._read_by(now), max(now, self.since)
        self._rates = np.array([rates.get(job, rate) for job, rate in zip(self.jobs, self._rates.tolist())])
        self._waits = self._until_near()

    def _read_by(self, now: float) -> Floats:
        """Where each job is in the lane."""
        alone: Floats = self._read + self._rates * np.maximum(0.0, now - self.since - self._waits)
        return np.maximum(self._read, np.minimum(alone, alone.min() + self.slack)) if len(alone) else alone

    def _seconds(self) -> Floats:
        """From `since` until each job has read its samples: x_i(dt) = target_i, solved for dt."""
        alone = self._waits + (self._targets - self._read) / self._rates
        allowed = self._reach(self._targets - self.slack, self._ever_last())
        return np.maximum(np.maximum(alone, allowed), 0.0)

    def _until_near(self) -> Floats:
        """Seconds that each job waits until the last one is no further behind it than the slack."""
        waits = self._waits = np.zeros(len(self))
        near = float(self._read.min(initial=math.inf)) + self.slack + _ROUNDING
        for index in np.argsort(self._read, kind="stable").tolist():
            if self._read[index] > near:
                behind = np.flatnonzero(self._read < self._read[index]).tolist()
                waits[index] = self._reach(self._read[index : index + 1] - self.slack, behind).item()
        return waits

    def _reach(self, places: Floats, jobs: list[int]) -> Floats:
        """From `since` until each of these jobs, if nobody else holds it up, has come to the places."""
        ways = places[:, None] - self._read[jobs]
        seconds: Floats = np.where(ways > 0, self._waits[jobs] + ways / self._rates[jobs], 0.0).max(axis=1)
        return seconds

    def _ever_last(self) -> list[int]:
        """The jobs that can be the last one: nobody is both slower and behind them, and reads as early."""
        if self._waits.any():
            return list(range(len(self)))
        found, least = [], math.inf
        for index in np.lexsort((self._read, self._rates)).tolist():
            if self._read[index] < least:
                found.append(index)
                least = self._read[index]
        return found


class Lanes:
    """The lanes of a simulation.

    Args:
        slack: slack of each.
    """

    def __init__(self, slack: float = 0.0) -> None:
        self._slack = slack
        self._of: dict[str, SimulatedLane] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def start(self, readers: Mapping[str, LaneJob], now: float) -> dict[str, ReaderPosition]:
        """These jobs begin to read the same samples; return where each stands. One alone needs no lane."""
        lane = SimulatedLane(readers, now, self._slack)
        if len(lane) > 1:
            self._of |= dict.fromkeys(readers, lane)
        return lane.readings()

    def repace(self, rates: Mapping[str, float], now: float) -> dict[str, ReaderPosition]:
        """Jobs read at other rates from now on; return where those stand that are in a lane whose rates change."""
        standing: dict[str, ReaderPosition] = {}
        for lane in {id(self._of[job]): self._of[job] for job in rates if job in self._of}.values():
            if not lane.goes_at(rates):
                lane.repace(rates, now)
                standing |= lane.readings()
        return standing

    def __contains__(self, job: str) -> bool:
        return job in self._of

    def leave(self, jobs: Iterable[str], now: float) -> tuple[dict[str, float], dict[str, ReaderPosition]]:
        """These jobs read no more.

        Returns:
            What each that was in a lane had still to read, and where those stand that are left in these lanes.
        """
        leaving: dict[SimulatedLane, list[str]] = {}
        for job in jobs:
            if job in self._of:
                leaving.setdefault(self._of.pop(job), []).append(job)
        gone: dict[str, float] = {}
        staying: dict[str, ReaderPosition] = {}
        for lane, names in leaving.items():
            gone |= lane.leave(set(names), now)
            staying |= lane.readings() if len(lane) else {}
            if len(lane) == 1:
                del self._of[lane.jobs[0]]
        return gone, staying


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
