"""A machine that is predicted from rate curves: a heap of events with deterministic ties."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Literal

from fleet.executor import Event, GroupEnded, Start, Started, StopReason
from fleet.protocol import EpochEnded


@dataclass
class SimulatedClock:
    """Seconds that pass only when an event is taken."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class SimulatedJob:
    """What the prediction needs to know of a job.

    Attributes:
        stream: jobs of the same stream can share samples.
        samples: training samples of an epoch.
        epochs: epochs until it is done.
    """

    stream: str
    samples: int
    epochs: int


@dataclass
class _Member:
    job: str
    devices: tuple[int, ...]
    rate: float
    epoch: int


@dataclass
class _Lane:
    """Jobs that read the same samples in lockstep, at the pace of the slowest (FLEET, MLSys'20, 4.3.1)."""

    samples: int
    members: list[_Member]
    position: float = 0.0  # samples of the epoch read at time `since`
    since: float = 0.0
    version: int = 0  # a change of members makes the scheduled epoch end void

    @property
    def pace(self) -> float:
        return min(member.rate for member in self.members)

    def read_by(self, time: float) -> float:
        """Samples of the epoch that are read at `time`."""
        return self.position + max(0.0, time - self.since) * self.pace if self.members else self.position


class SimulatedExecutor:
    """Predicts epoch ends from the fitted rates that each start brings. Steps are samples here.

    Args:
        jobs: what to know of each job, by name.
        clock: moved on to each event as it is taken.
        start_seconds: what forming a group and restoring its state takes.
        leave_seconds: what the checkpoint at leaving takes.
    """

    def __init__(
        self,
        jobs: Mapping[str, SimulatedJob],
        clock: SimulatedClock,
        start_seconds: float = 0.0,
        leave_seconds: float = 0.0,
    ) -> None:
        self._jobs = jobs
        self._clock = clock
        self._start_seconds = start_seconds
        self._leave_seconds = leave_seconds
        self._lanes: dict[int, _Lane] = {}
        self._heap: list[tuple[float, int, int, int]] = []  # (time, tie, lane, version)
        self._ready: list[tuple[float, int, Event]] = []
        self._ties = count()
        self._names = count()

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        """Put each job into a lane of its own, or into that of its sharing class."""
        lanes: dict[object, list[Start]] = {}
        for start in batch:
            key = (self._jobs[start.job].stream, start.epoch) if share else start.job
            lanes.setdefault(key, []).append(start)
        started: list[Started] = []
        for starts in lanes.values():
            name = next(self._names)
            members = [_Member(s.job, s.devices, s.fitted[len(s.devices) - 1], s.epoch) for s in starts]
            self._lanes[name] = _Lane(self._jobs[starts[0].job].samples, members, float(min(s.step for s in starts)))
            self._schedule(name, self._clock.now + self._start_seconds)
            started += [Started(s.job, name, self._jobs[s.job].stream) for s in starts]
        return tuple(started)

    def save_held(self) -> bool:
        """Nothing is ever in memory alone."""
        return False

    def stop(self, job: str, why: StopReason) -> None:
        """The job leaves now, where it stands in its epoch."""
        for name, lane in self._lanes.items():
            for member in [member for member in lane.members if member.job == job]:
                lane.position = lane.read_by(self._clock.now)
                lane.members.remove(member)
                self._end(member, "stopped", why, self._clock.now, int(lane.position))
                self._schedule(name, max(self._clock.now, lane.since))

    def next_event(self, timeout: float) -> Event | None:
        """Take the next event within `timeout` seconds, moving the clock on to it; None, and so much later, without."""
        until = self._clock.now + timeout
        while self._heap and self._heap[0][0] <= min(until, self._ready[0][0] if self._ready else math.inf):
            time, _, name, version = heapq.heappop(self._heap)
            if self._lanes[name].version == version:
                self._end_epoch(name, time)
        if not self._ready or self._ready[0][0] > until:
            self._clock.now = until if until < math.inf else self._clock.now
            return None
        time, _, event = heapq.heappop(self._ready)
        self._clock.now = max(self._clock.now, time)
        return event

    def _schedule(self, name: int, since: float) -> None:
        """Predict the lane's next epoch end from where it stands at `since`."""
        lane = self._lanes[name]
        lane.since, lane.version = since, lane.version + 1
        if lane.members:
            end = since + (lane.samples - lane.position) / lane.pace
            heapq.heappush(self._heap, (end, next(self._ties), name, lane.version))

    def _end_epoch(self, name: int, time: float) -> None:
        lane = self._lanes[name]
        for member in list(lane.members):
            member.epoch += 1
            self._say(time, self._epoch_of(lane, member, time))
            if member.epoch >= self._jobs[member.job].epochs:
                lane.members.remove(member)
                self._end(member, "done", "epochs", time, 0)
        lane.position = 0.0
        self._schedule(name, time)

    def _end(self, member: _Member, why: Literal["done", "stopped"], reason: str, time: float, step: int) -> None:
        ended = GroupEnded(member.job, member.devices, why, reason, member.epoch, step)
        self._say(time + self._leave_seconds, ended)

    def _say(self, time: float, event: Event) -> None:
        heapq.heappush(self._ready, (time, next(self._ties), event))

    def _epoch_of(self, lane: _Lane, member: _Member, time: float) -> EpochEnded:
        seconds, busy = time - lane.since, (lane.samples - lane.position) / member.rate
        waits = tuple(max(0.0, seconds - busy) for _ in member.devices)
        none = tuple(0.0 for _ in member.devices)
        return EpochEnded(
            member.job, member.epoch, 0, seconds, member.rate, {}, 0.0, waits, none, tuple(busy for _ in member.devices)
        )
