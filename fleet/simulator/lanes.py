"""Lanes: jobs that read the same samples pace each other (FLEET, MLSys'20, 4.3.1), but for what the buffer holds."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from fleet.simulator.traces.columns import Flags, Floats


class Reader(NamedTuple):
    """A job of a lane: what it could read, samples/s, and how many samples it still reads."""

    rate: float
    samples: float


class Reading(NamedTuple):
    """Where a job stands: samples that it has still to read, and when it will have, seconds."""

    samples: float
    end: float


class Lane:
    """Jobs that began together to read the same samples.

    A sample stays in the buffer until everybody has read it. So a job goes at its own rate until it is `slack` samples
    ahead of the last one, and then as fast as that one. With positions x and rates r at `since`, dt seconds later

        the last one is at  L(dt) = min_j (x_j + r_j dt),   and job i at  min(x_i + r_i dt, L(dt) + slack).

    L is concave: whoever was held up once is held up until somebody leaves.

    Args:
        readers: by name of the job; one or more.
        since: when they begin, seconds.
        slack: samples that a job may be ahead; 0: lockstep.
    """

    def __init__(self, readers: Mapping[str, Reader], since: float = 0.0, slack: float = 0.0) -> None:
        self.jobs = tuple(readers)
        self.since, self.slack = since, slack
        self._rates: Floats = np.array([reader.rate for reader in readers.values()])
        self._targets: Floats = np.array([reader.samples for reader in readers.values()])
        self._read: Floats = np.zeros(len(readers))

    def __len__(self) -> int:
        return len(self.jobs)

    def read_by(self, now: float) -> dict[str, float]:
        """Samples that each job has read at `now`, since the lane began."""
        return dict(zip(self.jobs, self._read_by(now).tolist()))

    def readings(self) -> dict[str, Reading]:
        """Where each job stands at `since`."""
        left, ends = self._targets - self._read, self.since + self._seconds()
        return {job: Reading(*found) for job, found in zip(self.jobs, zip(left.tolist(), ends.tolist()))}

    def leave(self, jobs: Collection[str], now: float) -> dict[str, float]:
        """These jobs read no more; return what each had still to read. The others stand where they are."""
        self._read, self.since = self._read_by(now), max(now, self.since)
        left = self._targets - self._read
        stays: Flags = np.array([job not in jobs for job in self.jobs], dtype=bool)
        gone = {job: max(0.0, float(left[index])) for index, job in enumerate(self.jobs) if not stays[index]}
        self.jobs = tuple(job for job, stay in zip(self.jobs, stays) if stay)
        self._rates, self._targets, self._read = self._rates[stays], self._targets[stays], self._read[stays]
        return gone

    def goes_on(self, samples: float, now: float) -> None:
        """Everybody has so many more samples to read."""
        self._read, self.since = self._read_by(now), max(now, self.since)
        self._targets = self._targets + samples

    def _read_by(self, now: float) -> Floats:
        seconds = max(0.0, now - self.since)
        alone: Floats = self._read + self._rates * seconds
        return np.minimum(alone, alone.min() + self.slack) if len(alone) else alone

    def _seconds(self) -> Floats:
        """From `since` until each job has read its samples: x_i(dt) = target_i, solved for dt."""
        alone = (self._targets - self._read) / self._rates
        behind = self._ever_last()
        allowed = (self._targets[:, None] - self.slack - self._read[behind]) / self._rates[behind]
        return np.maximum(np.maximum(alone, allowed.max(axis=1)), 0.0)

    def _ever_last(self) -> list[int]:
        """The jobs that can be the last one: nobody is both slower and behind them."""
        found, least = [], math.inf
        for index in np.lexsort((self._read, self._rates)).tolist():
            if self._read[index] < least:
                found.append(index)
                least = self._read[index]
        return found


class Lanes:
    """The lanes of a simulation.

    Args:
        slack: of each.
    """

    def __init__(self, slack: float = 0.0) -> None:
        self._slack = slack
        self._of: dict[str, Lane] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def start(self, readers: Mapping[str, Reader], now: float) -> dict[str, Reading]:
        """These jobs begin to read the same samples; return where each stands. One alone needs no lane."""
        lane = Lane(readers, now, self._slack)
        if len(lane) > 1:
            self._of |= dict.fromkeys(readers, lane)
        return lane.readings()

    def leave(self, jobs: Iterable[str], now: float) -> tuple[dict[str, float], dict[str, Reading]]:
        """These jobs read no more.

        Returns:
            What each that was in a lane had still to read, and where those stand that are left in these lanes.
        """
        leaving: dict[Lane, list[str]] = {}
        for job in jobs:
            if job in self._of:
                leaving.setdefault(self._of.pop(job), []).append(job)
        gone: dict[str, float] = {}
        staying: dict[str, Reading] = {}
        for lane, names in leaving.items():
            gone |= lane.leave(set(names), now)
            staying |= lane.readings() if len(lane) else {}
            if len(lane) == 1:
                del self._of[lane.jobs[0]]
        return gone, staying
