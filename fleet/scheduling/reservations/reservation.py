"""A reservation for one job: so many devices from then until then, enough to be done by its deadline."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.reservations.speed_levels import SpeedLevels

MARGIN = 1e-6
"""Seconds by which a reservation is too long, and ends before the deadline, at least: what rounding may take."""

Reservation = tuple[tuple[float, float, int], ...]
"""(begin, end, devices), seconds since the run began, one after the other, one device or more each."""


@dataclass(frozen=True)
class Demand:
    """What a job needs by when.

    Attributes:
        name: the job's name.
        samples: what it must still train.
        deadline: seconds since the run began.
        levels: its speeds.
        restart: seconds that getting other devices costs.
        held: devices that it has now; 0 also where fewer would be as fast: it moves then.
        ready: when it trains, or trained, on these.
        margin: seconds by which its reservation is too long, and ends before the deadline.
    """

    name: str
    samples: float
    deadline: float
    levels: SpeedLevels
    restart: float = 0.0
    held: int = 0
    ready: float = 0.0
    margin: float = MARGIN

    @classmethod
    def of(cls, job: JobState, levels: SpeedLevels, now: float, margin: float = MARGIN) -> Demand:
        """What `job` needs at `now`."""
        held = job.held if job.pace and job.held == levels.useful(job.held) else 0
        left = max(0.0, job.remaining_at(now))  # a live job can be later than its pace said
        return cls(job.name, left, job.deadline, levels, job.restart, held, job.ready, margin)

    @property
    def until(self) -> float:
        """When it should be done."""
        return self.deadline - self.margin

    @property
    def wanted(self) -> float:
        """Samples for which devices are reserved."""
        return self.samples + self.levels.top_rate * self.margin

    @property
    def sufficient(self) -> float:
        """Samples that will do where there is no room for those wanted, delays having taken some of the margin."""
        return self.samples + self.levels.top_rate * self.margin / 10

    def possible(self, now: float) -> bool:
        """Whether it could be done in time if it had all devices that it can use, from now on."""
        return (self.until - now - self.restart) * self.levels.top_rate >= self.sufficient or self._staying(now)

    def least_device_seconds(self, now: float) -> float:
        """What it needs of an otherwise empty machine, in the slowest way that is in time."""
        window = self.until - now - self.restart
        if window <= 0:
            return math.inf
        return float(self.levels.counts[self.levels.slowest(self.wanted / window)]) * window

    def _staying(self, now: float) -> bool:
        return self.held > 0 and (self.until - max(now, self.ready)) * self.levels.rate(self.held) >= self.sufficient


def trained(reservation: Reservation, demand: Demand, now: float) -> float:
    """Samples that the job trains from `now` on if it gets its reservation, and nothing else.

    Each change of the number of devices costs a restart; to go on with the devices that it has now costs nothing.
    """
    total = 0.0
    for begin, end, devices in reservation:
        if end > now:
            stays = begin <= now and devices == demand.held
            first = max(now, demand.ready) if stays else max(now, begin) + demand.restart
            total += demand.levels.rate(devices) * max(0.0, end - first)
    return total


def can_wait(
    reservation: Reservation, demand: Demand, count: int, now: float, wake: float, home: float = math.inf
) -> bool:
    """Whether a job that has `count` devices from now on can take up its reservation whenever until `wake`, in time.

    Args:
        home: until when it need not move to go on with the same number.
    """
    marks = {bound for begin, end, _ in reservation for bound in (begin, end, end - demand.restart)}
    if wake < math.inf:
        marks.add(wake)
    ready = demand.ready if count == demand.held else now + demand.restart
    for time in sorted(mark for mark in {*marks, now, ready} if now <= mark <= wake):
        done = demand.levels.rate(count) * max(0.0, time - max(now, ready)) if count else 0.0
        later = replace(demand, samples=demand.samples - done, held=count if time < home else 0, ready=ready)
        if trained(reservation, later, time) < later.samples:
            return False
    return True


def next_bound(reservation: Reservation, now: float) -> float:
    """When after `now` the reserved number changes for the first time; infinite: never."""
    return min((bound for begin, end, _ in reservation for bound in (begin, end) if bound > now), default=math.inf)


def reserved_at(reservation: Reservation, now: float) -> int:
    """Devices that are reserved at `now`."""
    for begin, end, devices in reservation:
        if begin <= now < end:
            return devices
    return 0


def next_rise(reservation: Reservation, now: float, devices: int) -> float:
    """When after `now` more than so many devices are reserved for the first time; infinite: never."""
    return next((begin for begin, _, count in reservation if begin > now and count > devices), math.inf)


def joined(pieces: Iterable[tuple[float, float, int]]) -> Reservation:
    """Pieces in the order of time as a reservation: no empty ones, and those alike that touch are one."""
    whole: list[tuple[float, float, int]] = []
    for begin, end, devices in pieces:
        if end <= begin or not devices:
            continue
        if whole and whole[-1][1] == begin and whole[-1][2] == devices:
            whole[-1] = (whole[-1][0], end, devices)
        else:
            whole.append((begin, end, devices))
    return tuple(whole)
