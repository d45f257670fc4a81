"""Tiresias: two-dimensional least attained service, in discretised queues (Gu et al., NSDI'19)."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from fleet.scheduling.model.cluster import FreeDevices
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State
from fleet.scheduling.policies.fifo import too_large

_ROUNDING = 1e-9  # of a threshold: service is a sum of products


class _Place(NamedTuple):
    queue: int
    held: int  # 0: it waits
    leaves: float  # when it goes down to the next queue, or back to the first one


class _Entry(NamedTuple):
    since: float
    begins: bool  # or it comes from the queue before, and goes before those who begin
    name: str
    place: _Place


class ServiceQueues:
    """2D-LAS with discretised queues (Tiresias, NSDI'19, 3.2): a policy's memo.

    A job's service is devices x seconds since it was last promoted. Queue k holds the jobs whose service has reached k
    of the thresholds. In a queue those that run come first, in the order in which they began to run in it; then those
    that wait, by arrival.

    Args:
        thresholds: device-seconds, ascending.
        promote: a job that has waited so many times as long as it ran goes back to the first queue; 0: never.
    """

    def __init__(self, thresholds: tuple[float, ...], promote: float) -> None:
        self._thresholds, self._promote = thresholds, promote
        self._limits = [limit * (1 - _ROUNDING) for limit in thresholds]
        self._places: dict[str, _Place] = {}
        count = len(thresholds) + 1
        self._running: list[dict[str, _Entry]] = [{} for _ in range(count)]
        self._held = [0] * count
        self._waiting: list[dict[int, list[tuple[float, str]]]] = [{} for _ in range(count)]  # gang -> heap
        self._waits = [0] * count
        self._leaving: list[list[tuple[float, str]]] = [[] for _ in range(count)]  # heaps: who goes down when
        self._starving: list[tuple[float, str]] = []
        self._moved: set[str] = set()  # by the last plan
        self.count = count
        self.too_large: list[str] = []
        self.promoted: list[str] = []

    @classmethod
    def of(cls, state: State, thresholds: tuple[float, ...], promote: float) -> ServiceQueues:
        """The queues of the last plan with the changes since, or new ones."""
        if isinstance(state.memo, cls):
            queues, names = state.memo, {*state.changed, *state.memo._moved}
        else:
            queues, names = cls(thresholds, promote), set(state.by_name)
        queues._catch_up(state, names)
        return queues

    def next(self, queue: int, devices: int) -> str | None:
        """The first that waits in a queue of those that need no more devices."""
        if not self._waits[queue]:
            return None
        best: tuple[float, str] | None = None
        for gang, heap in self._waiting[queue].items():
            if gang > devices:
                continue
            while heap and self._places.get(heap[0][1], _NOWHERE)[:2] != (queue, 0):
                heapq.heappop(heap)
            if heap and (best is None or heap[0] < best):
                best = heap[0]
        return None if best is None else best[1]

    @property
    def anybody_waits(self) -> bool:
        """Whether anybody does."""
        return any(self._waits)

    def below(self, queue: int) -> int:
        """Devices of the jobs that run in later queues."""
        return sum(self._held[queue + 1 :])

    def last(self) -> str:
        """The last that runs, of the last queue."""
        queue = next(queue for queue in range(self.count - 1, -1, -1) if self._running[queue])
        return next(reversed(self._running[queue]))

    def started(self, job: JobState) -> None:
        """A job that waited gets its gang; it stands nowhere until the next plan."""
        self._leave(job.name)
        self._moved.add(job.name)

    def stopped(self, job: JobState, now: float) -> None:
        """A job that ran waits, in its queue."""
        queue = self._places[job.name].queue
        self._leave(job.name)
        self._wait(job, queue, now)
        self._moved.add(job.name)

    def wake(self) -> float:
        """When a job changes its queue in a way that lets another one run, seconds."""
        times = [self._first(self._leaving[queue], True) for queue in range(self.count - 1) if self._waits[queue]]
        return min([*times, self._first(self._starving, False)])

    def _catch_up(self, state: State, names: Iterable[str]) -> None:
        self._moved, self.too_large, self.promoted = set(), [], []
        entering: list[_Entry] = []
        for name in names:
            self._leave(name)
            job = state.by_name.get(name)
            if job is None:
                continue
            if name in state.running:
                entering.append(self._entry(job, len(state.running[name]), state.time))
            elif job.gang > state.cluster.size:
                self.too_large.append(name)
            else:
                self._wait(job, self._queue(job), job.since)
        entering += self._going_down(state)
        for entry in sorted(entering):
            self._run(entry)
        self._raise(state)

    def _going_down(self, state: State) -> list[_Entry]:
        """Those whose service has reached their queue's threshold; they run in none for now."""
        found = []
        for heap in self._leaving:
            while self._first(heap, True) <= state.time:
                _, name = heapq.heappop(heap)
                held = self._places[name].held
                self._leave(name)
                found.append(self._entry(state.by_name[name], held, state.time))
        return found

    def _entry(self, job: JobState, held: int, now: float) -> _Entry:
        """The queue in which a job runs at `now`, and since when."""
        queue = self._queue(job)
        since, begins, leaves = job.since, True, self._leaves(job, held, queue)
        while leaves <= now:
            queue += 1
            since, begins, leaves = leaves, False, self._leaves(job, held, queue)
        return _Entry(since, begins, job.name, _Place(queue, held, leaves))

    def _leaves(self, job: JobState, held: int, queue: int) -> float:
        """When a job that runs reaches the threshold of a queue."""
        if queue == self.count - 1:
            return math.inf
        return job.since + (self._thresholds[queue] - job.attained + job.service_reset) / held

    def _raise(self, state: State) -> None:
        while self._first(self._starving, False) <= state.time:
            _, name = heapq.heappop(self._starving)
            self._leave(name)
            self._wait(state.by_name[name], 0, state.time)
            self._moved.add(name)
            self.promoted.append(name)

    def _queue(self, job: JobState) -> int:
        """The queue in which it was when it got what it holds now, or lost all."""
        return bisect_right(self._limits, job.attained - job.service_reset)

    def _run(self, entry: _Entry) -> None:
        place = entry.place
        if place.leaves < math.inf:
            heapq.heappush(self._leaving[place.queue], (place.leaves, entry.name))
        self._places[entry.name] = place
        running = self._running[place.queue]
        in_order = not running or running[next(reversed(running))] < entry
        running[entry.name] = entry
        if not in_order:  # it was to stop, and goes on after all
            self._running[place.queue] = {found.name: found for found in sorted(running.values())}
        self._held[place.queue] += place.held

    def _wait(self, job: JobState, queue: int, since: float) -> None:
        leaves = math.inf
        if self._promote and queue:
            leaves = since + self._promote * (job.attained_at(since) - job.service_reset) / job.gang
            heapq.heappush(self._starving, (leaves, job.name))
        self._places[job.name] = _Place(queue, 0, leaves)
        heapq.heappush(self._waiting[queue].setdefault(job.gang, []), (job.arrival, job.name))
        self._waits[queue] += 1

    def _leave(self, name: str) -> None:
        place = self._places.pop(name, None)
        if place is None:
            return
        if place.held:
            del self._running[place.queue][name]
            self._held[place.queue] -= place.held
        else:
            self._waits[place.queue] -= 1

    def _first(self, heap: list[tuple[float, str]], runs: bool) -> float:
        """The time of the first that is still meant, of those that run or that wait; infinite if there is none."""
        while heap:
            time, name = heap[0]
            place = self._places.get(name, _NOWHERE)
            if place.leaves == time and (place.held > 0) == runs:
                return time
            heapq.heappop(heap)
        return math.inf


_NOWHERE = _Place(-1, -1, math.nan)


@dataclass(frozen=True)
class Tiresias(Policy):
    """Serve the job that has had least first: jobs of an earlier queue preempt others, and no other jobs do.

    A job's service is devices x seconds (3.2.1). New jobs are in the first queue, and go down by one at each threshold
    (3.2.2, priority discretisation). A job that waits gets its gang from free devices or from jobs of later queues, the
    last of the last queue first; where it does not fit, the next one may (the authors' simulator does the same).
    A job that asks for more than the cluster has is dropped.

    Args:
        thresholds: device-seconds between the queues, ascending; one or more. The authors' simulator, as
            pkusys/ElasticFlow uses it, has 3,250 and 7,200.
        promote: PROMOTEKNOB: a job that has waited so many times as long as it ran goes back to the first queue, its
            service forgotten (3.2.3, starvation); 0: never, as in the comparisons of others.

    Raises:
        ValueError: thresholds that do not ascend from above 0, or a negative knob.
    """

    name: ClassVar[str] = "tiresias"
    keeps_minimum: ClassVar[bool] = True

    thresholds: tuple[float, ...] = (3250.0, 7200.0)
    promote: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", tuple(float(limit) for limit in self.thresholds))
        steps = zip((0.0, *self.thresholds), self.thresholds)
        if not self.thresholds or not all(low < high < math.inf for low, high in steps):
            raise ValueError(f"thresholds is {self.thresholds}; name device-seconds that ascend from above 0")
        if not 0 <= self.promote < math.inf:
            raise ValueError(f"promote is {self.promote}; it must be 0 (never) or more, and finite")

    def plan(self, state: State) -> Plan:
        """Place the waiting jobs of each queue in turn, on free devices and on devices of later queues."""
        queues = ServiceQueues.of(state, self.thresholds, self.promote)
        placed: dict[str, tuple[int, ...]] = {}
        stopped: dict[str, None] = {}
        if queues.anybody_waits:
            self._preempt(state, queues, placed, stopped)
        return Plan(
            placed,
            others_go_on=True,
            stopped=tuple(stopped),
            dropped=too_large((state.by_name[name] for name in sorted(queues.too_large)), state.cluster),
            promoted=tuple(queues.promoted),
            wake=queues.wake(),
            memo=queues,
        )

    def _preempt(
        self, state: State, queues: ServiceQueues, placed: dict[str, tuple[int, ...]], stopped: dict[str, None]
    ) -> None:
        """Find who gets devices, and who loses them for that."""
        free = state.free_devices()
        for queue in range(queues.count):
            while (name := queues.next(queue, free.count + queues.below(queue))) is not None:
                job = state.by_name[name]
                while free.count < job.gang:
                    last = queues.last()
                    stopped[last] = None
                    queues.stopped(state.by_name[last], state.time)
                    free.give(state.running[last])
                queues.started(job)
                devices = _where(name, job.gang, state, free)
                if name in stopped:
                    del stopped[name]
                if devices != state.running.get(name):
                    placed[name] = devices


def _where(name: str, gang: int, state: State, free: FreeDevices) -> tuple[int, ...]:
    """Where it was until now, if nobody took that; else where it fits best."""
    held = state.running.get(name, ())
    if len(held) == gang and all(device in free for device in held):
        free.remove(held)
        return held
    devices = free.take(gang)
    assert devices is not None, "the queue was asked for a job that fits"
    return devices
