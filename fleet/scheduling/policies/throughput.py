"""Elastic scaling with variable batch size (Saxena et al., "Effective elastic scaling of DL workloads", 2020)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.state import Allocation, State
from fleet.scheduling.model.trigger import Trigger
from fleet.scheduling.policies.checks import check_flag
from fleet.scheduling.queues.waiting_line import WaitingLine
from fleet.scheduling.variable_batch.allocation_table import best_counts
from fleet.scheduling.variable_batch.scalability import MODES, BatchCurve, curve_of

K_MAX = 10
"""Devices of a job at most, as in III-C."""


class _Memo:
    """What the last plan computed: who waits, and the curve of each job with what it was computed from."""

    def __init__(self) -> None:
        self.line: WaitingLine | None = None
        self.curves: dict[str, tuple[JobState, BatchCurve]] = {}


@dataclass(frozen=True)
class Throughput(Policy):
    """The devices and batch sizes with the greatest sum of throughput scaling factors, anew at each change.

    Running jobs go on with at least their least number of devices; waiting ones join in the order of their arrival as
    long as all can have theirs (III-D). Then `best_counts` shares the devices out, each job with the batch that is best
    on its count. A batch changes only together with the devices.

    Args:
        batch: "variable" within the job's range; "fixed": the job's own, their baseline; "max" or "min": the end of
            its range, Max-BS and Min-BS.
        most: devices of a job at most, k_max.
        interval: seconds between plans; 0: at each event.
        events: with an interval, plan at once when so many events wait; 0: never.
        queue: whether jobs that cannot start wait; otherwise they are dropped.
        backfill: whether later jobs may go before one that does not fit (their Figure 4; their text ends the trial).
        priority_base: how many times as much the throughput of a job counts for each step of its priority, which then
            also orders the queue; 1: priorities are ignored.
        price: a device's cost, in units of a device's throughput: devices that bring less than they cost stay free;
            beside what `State.costs` says.
        stay: throughput that a move must bring so that a running job moves.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "throughput"
    keeps_minimum: ClassVar[bool] = True

    batch: str = "variable"
    most: int = K_MAX
    interval: float = 0.0
    events: int = 0
    queue: bool = True
    backfill: bool = False
    priority_base: float = 1.0
    price: float = 0.0
    stay: float = 0.0

    def __post_init__(self) -> None:
        if self.batch not in MODES:
            raise ValueError(f"batch is {self.batch!r}; it must be one of {', '.join(MODES)}")
        if isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < 1:
            raise ValueError(f"most is {self.most!r}; it must be a whole number of devices, 1 or more")
        check_flag("queue", self.queue)
        check_flag("backfill", self.backfill)
        for name, least in (("priority_base", 1.0), ("price", 0.0), ("stay", 0.0)):
            _check_number(name, getattr(self, name), least)
        Trigger(self.interval, self.events)

    @property
    def chooses_batches(self) -> bool:
        """Unless they are fixed."""
        return self.batch != "fixed"

    @property
    def trigger(self) -> Trigger:
        """At each event, or at the ends of intervals, or sooner (V-B: hybrid)."""
        return Trigger(self.interval, self.events)

    def plan(self, state: State) -> Plan:
        """Who trains on how many devices with what batch; the others wait or are dropped."""
        memo = state.memo if isinstance(state.memo, _Memo) else _Memo()
        for name in state.changed:
            if name not in state.by_name:
                memo.curves.pop(name, None)
        curves: dict[str, BatchCurve] = {}  # of those who run from now on
        pinned = self._running(state, memo, curves)
        size = state.capacity - sum(map(len, pinned.values()))
        dropped = self._join(size, state, memo, curves)
        placed = _placed(self._counts(size, state, curves), pinned, state)
        return Plan(placed, batches=_batches(placed, state, curves), dropped=dropped, memo=memo)

    def _running(self, state: State, memo: _Memo, curves: dict[str, BatchCurve]) -> dict[str, tuple[int, ...]]:
        """Enter the jobs that run; return those that go on as they are, as they hold too few for this policy."""
        pinned = {}
        for name, devices in state.running.items():
            if not state.unavailable or state.unavailable.isdisjoint(devices):
                curve = self._curve(state.by_name[name], memo)
                if curve.least is None or curve.least > len(devices):
                    pinned[name] = devices
                else:
                    curves[name] = curve
        return pinned

    def _counts(self, size: int, state: State, curves: dict[str, BatchCurve]) -> dict[str, int]:
        """The dynamic program over jobs that can all have devices at once."""
        jobs = sorted(map(state.by_name.__getitem__, curves), key=self._key)
        counts = best_counts([self._gains(job, curves[job.name], state) for job in jobs], size)
        assert counts is not None, "the queue was trimmed to what is feasible"
        alike = [(curves[job.name].key, job.priority) for job in jobs]
        return dict(zip((job.name for job in jobs), _steady(jobs, alike, counts)))

    def _key(self, job: JobState) -> tuple[bool, float, float, str]:
        """Who has trained goes first, so that nobody who was moved or hit by a failure loses its turn."""
        priority = job.priority if self.priority_base > 1 else 0.0
        return not job.attained, -priority, job.arrival, job.name

    def _curve(self, job: JobState, memo: _Memo) -> BatchCurve:
        """The factors of a job, from the memo if nothing has changed that they depend on."""
        known = memo.curves.get(job.name)
        if known is not None and known[0] is job:
            return known[1]
        curve = known[1] if known is not None and _same(known[0], job) else curve_of(job, self.batch, self.most)
        memo.curves[job.name] = job, curve
        return curve

    def _join(self, size: int, state: State, memo: _Memo, curves: dict[str, BatchCurve]) -> dict[str, str]:
        """Enter those who wait, as long as there is room for all (III-D); return who is dropped, and why."""
        room = size - sum(curve.least or 0 for curve in curves.values())
        memo.line = WaitingLine.of(replace(state, memo=memo.line), self._key)
        dropped: dict[str, str] = {}
        seen: dict[str, JobState] = {}
        for job in memo.line.take(state):
            if job.name in seen:
                continue
            seen[job.name] = job
            curve = self._curve(job, memo)
            least = curve.least
            if least is None or least > state.cluster.size:
                dropped[job.name] = _impossible(job, least, self.most, state.cluster.size)
            elif least <= room:
                room -= least
                curves[job.name] = curve
            elif least > state.capacity and self.queue:
                continue  # too few devices work: nobody waits for it
            elif not self.queue:
                dropped[job.name] = f"it needs {least} devices, and {room} are left beside those that the others need"
            elif not (self.backfill and room):
                break
        for job in seen.values():
            if job.name not in dropped:
                memo.line.back(
                    job
                )  # also who joins: its devices may not be free yet, and the driver ask before they are
        return dropped

    def _gains(self, job: JobState, curve: BatchCurve, state: State) -> Floats:
        """What a job brings to the sum, by its count."""
        gains = curve.factors
        if self.priority_base > 1:
            gains = gains * self.priority_base**job.priority
        price = self.price + state.costs.get("", 0.0)
        if price:
            gains = gains - price * np.arange(1, len(gains) + 1)
        if self.stay and 0 < job.held <= len(gains):
            gains = gains + self.stay * (np.arange(1, len(gains) + 1) == job.held)
        return gains


def _same(known: JobState, job: JobState) -> bool:
    """Whether both have the same curve."""
    same = known.rate is job.rate and known.scaling is job.scaling and known.limit == job.limit
    same = same and known.minimum_devices == job.minimum_devices
    return same and known.batches == job.batches and known.batch == job.batch


def _steady(jobs: Sequence[JobState], alike: Sequence[tuple[bytes, float]], counts: Sequence[int]) -> list[int]:
    """The counts, exchanged among jobs that gain alike so that as many as possible keep what they hold."""
    left: dict[tuple[bytes, float], Counter[int]] = {kind: Counter() for kind in set(alike)}
    for kind, count in zip(alike, counts):
        left[kind][count] += 1
    chosen = [0] * len(jobs)
    for index, (job, kind) in enumerate(zip(jobs, alike)):
        if left[kind][job.held]:
            left[kind][job.held] -= 1
            chosen[index] = job.held
    rest = {kind: sorted(there.elements()) for kind, there in left.items()}
    return [count or rest[kind].pop() for count, kind in zip(chosen, alike)]


def _placed(
    counts: Mapping[str, int], pinned: Mapping[str, tuple[int, ...]], state: State
) -> dict[str, tuple[int, ...]]:
    """Jobs whose count stays keep their devices; the others get theirs anew, the largest first, where they fit best."""
    placed = dict(pinned)
    placed |= {name: held for name, count in counts.items() if len(held := state.running.get(name, ())) == count}
    free = state.free_devices()
    for name, devices in state.running.items():
        if name not in placed:
            free.give(device for device in devices if device not in state.unavailable)
    for name in sorted((name for name in counts if name not in placed), key=lambda name: -counts[name]):
        placed[name] = free.take(counts[name]) or ()
    return placed


def _batches(placed: Allocation, state: State, curves: Mapping[str, BatchCurve]) -> dict[str, int]:
    """The batches that change, as they do for jobs that move."""
    batches: dict[str, int] = {}
    for name, devices in placed.items():
        if state.running.get(name) != devices:
            batch = int(curves[name].batches[len(devices) - 1])
            if batch and batch != state.by_name[name].batch:
                batches[name] = batch
    return batches


def _impossible(job: JobState, least: int | None, most: int, size: int) -> str:
    if least is not None:
        what = "it" if least <= job.minimum_devices else "its smallest batch"
        return f"{what} needs {least} devices; the cluster has {size}"
    if job.minimum_devices > min(most, job.limit):
        return f"it needs {job.minimum_devices} devices; it may have {min(most, job.limit)}"
    return f"none of its batches fits on {min(most, job.limit)} devices or fewer, the most that it may have"


def _check_number(name: str, value: object, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= least):
        raise ValueError(f"{name} is {value!r}; it must be a number of {least:g} or more")
