"""A machine that is predicted from rate curves: a heap of events with deterministic ties."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Literal

from fleet.coordination.executor import Event, GroupEnded, Start, Started, StopReason
from fleet.coordination.protocol import EpochEnded
from fleet.simulator.lanes import Lane, Reader

_ROUNDING = 1e-6  # samples


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
class _Epoch:
    """What the jobs of a lane read together: an epoch, and then the next."""

    samples: int
    members: list[_Member]
    lane: Lane
    version: int = 0  # a change of members makes the scheduled epoch end void


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
        self._epochs: dict[int, _Epoch] = {}
        self._heap: list[tuple[float, int, int, int]] = []  # (time, tie, lane, version)
        self._ready: list[tuple[float, int, Event]] = []
        self._ties = count()
        self._names = count()

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        """Put each job into a lane of its own, or into that of its sharing class."""
        lanes: dict[object, list[Start]] = {}
        for start in batch:
            key = (self._jobs[start.job].stream, start.epoch, start.lane) if share else start.job
            lanes.setdefault(key, []).append(start)
        started: list[Started] = []
        for starts in lanes.values():
            name = next(self._names)
            members = [_Member(s.job, s.devices, s.fitted[len(s.devices) - 1], s.epoch) for s in starts]
            samples = self._jobs[starts[0].job].samples
            left = float(samples - min(s.step for s in starts))
            readers = {member.job: Reader(member.rate, left) for member in members}
            self._epochs[name] = _Epoch(samples, members, Lane(readers, self._clock.now + self._start_seconds))
            self._schedule(name)
            started += [Started(s.job, name, self._jobs[s.job].stream) for s in starts]
        return tuple(started)

    def save_held(self) -> bool:
        """Nothing is ever in memory alone."""
        return False

    def stop(self, job: str, why: StopReason) -> None:
        """The job leaves now, where it stands in its epoch."""
        for name, epoch in self._epochs.items():
            for member in [member for member in epoch.members if member.job == job]:
                left = epoch.lane.leave([job], self._clock.now)[job]
                epoch.members.remove(member)
                self._end(member, "stopped", why, self._clock.now, int(epoch.samples - left + _ROUNDING))
                self._schedule(name)

    def next_event(self, timeout: float) -> Event | None:
        """Take the next event within `timeout` seconds, moving the clock on to it; None, and so much later, without."""
        until = self._clock.now + timeout
        while self._heap and self._heap[0][0] <= min(until, self._ready[0][0] if self._ready else math.inf):
            time, _, name, version = heapq.heappop(self._heap)
            if self._epochs[name].version == version:
                self._end_epoch(name, time)
        if not self._ready or self._ready[0][0] > until:
            self._clock.now = until if until < math.inf else self._clock.now
            return None
        time, _, event = heapq.heappop(self._ready)
        self._clock.now = max(self._clock.now, time)
        return event

    def _schedule(self, name: int) -> None:
        """Predict when the lane ends its epoch; in lockstep all of it do so at once."""
        epoch = self._epochs[name]
        epoch.version += 1
        if epoch.members:
            end = min(reading.end for reading in epoch.lane.readings().values())
            heapq.heappush(self._heap, (end, next(self._ties), name, epoch.version))

    def _end_epoch(self, name: int, time: float) -> None:
        epoch = self._epochs[name]
        readings, seconds = epoch.lane.readings(), time - epoch.lane.since
        for member in list(epoch.members):
            member.epoch += 1
            busy = readings[member.job].samples / member.rate
            self._say(time, _ended(member, seconds, busy))
            if member.epoch >= self._jobs[member.job].epochs:
                epoch.lane.leave([member.job], time)
                epoch.members.remove(member)
                self._end(member, "done", "epochs", time, 0)
        epoch.lane.goes_on(epoch.samples, time)
        self._schedule(name)

    def _end(self, member: _Member, why: Literal["done", "stopped"], reason: str, time: float, step: int) -> None:
        ended = GroupEnded(member.job, member.devices, why, reason, member.epoch, step)
        self._say(time + self._leave_seconds, ended)

    def _say(self, time: float, event: Event) -> None:
        heapq.heappush(self._ready, (time, next(self._ties), event))


def _ended(member: _Member, seconds: float, busy: float) -> EpochEnded:
    """An epoch of so many seconds, of which each device computed for `busy`, and waited for samples in the others."""
    waits = tuple(max(0.0, seconds - busy) for _ in member.devices)
    none = tuple(0.0 for _ in member.devices)
    computed = tuple(busy for _ in member.devices)
    return EpochEnded(member.job, member.epoch, 0, seconds, member.rate, {}, 0.0, waits, none, computed)
