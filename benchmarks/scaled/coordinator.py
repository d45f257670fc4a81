"""CPU of rank 0 for each kind of event, with many networks on as many devices: real coordinator, books and journal."""

from __future__ import annotations

import math
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import thread_time

from fleet.coordination.bookkeeper import Bookkeeper
from fleet.coordination.coordinator import Coordinator
from fleet.coordination.executor import Event, GroupEnded, Start, Started, StopReason
from fleet.coordination.job_record import JobRecord
from fleet.coordination.ledger import Ledger
from fleet.coordination.outside import Outside
from fleet.coordination.protocol import AtStep, CheckpointWritten, EpochEnded
from fleet.journal.journal import Journal
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.model.state import Cluster
from fleet.scheduling.policies import policy

PER_NODE = 8
MEASURED = 200
"""Events of a kind that are measured, one by one."""
ENDS = 25
SECONDS_A_MESSAGE = 0.001


@dataclass(frozen=True)
class EventCosts:
    """Milliseconds of rank 0's CPU: medians over events of a kind, in a run whose networks all train.

    Attributes:
        starting: seconds until all train.
        step, epoch, checkpoint: a message of a step, the end of an epoch, a checkpoint that was written.
        end: the end of a network, with the plan that follows and the start of the network that waited.
    """

    networks: int
    starting: float
    step: float
    epoch: float
    checkpoint: float
    end: float


def event_costs(networks: int, devices: int, name: str) -> EventCosts:
    """Coordinate so many networks on so many devices under a policy; 2 ENDS further ones wait where devices are few."""
    clock = _Clock()
    jobs = [_job(number) for number in range(networks)]
    cluster = Cluster((PER_NODE,) * (devices // PER_NODE))
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        journal = Journal(Path(folder) / "journal.jsonl", clock)
        ledger = Ledger(cluster, [JobRecord.of(job, "data/0") for job in jobs], seed=0)
        ranks = PlayedRanks(clock)
        books = Bookkeeper(ledger, journal)
        coordinator = Coordinator(policy(name), ranks, books, Outside(), silence=3600.0, poll=math.inf)
        begin = thread_time()
        try:
            coordinator.run()
        except _AllMeasured:
            pass
        finally:
            journal.close()
    costs = {kind: 1e3 * median(seconds) for kind, seconds in ranks.seconds.items()}
    return EventCosts(
        networks, ranks.began - begin, costs["step"], costs["epoch"], costs["checkpoint"], costs["end"]
    )  # fmt: skip


def _job(number: int) -> JobState:
    curve = RateCurve({1: 10.0, 2: 18.0, 4: 30.0}, per_node=PER_NODE)
    return JobState(f"net-{number:05}", curve, 4, remaining=30_000.0 + number, epoch=1000.0)


class _AllMeasured(Exception):
    """All events have been."""


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class PlayedRanks:
    """Plays the ranks that train: says what they would, and takes the time until the coordinator asks again."""

    def __init__(self, clock: _Clock) -> None:
        self._clock, self._running = clock, dict[str, Start]()
        self._stopped: deque[GroupEnded] = deque()
        self._events: Iterator[tuple[str, Event]] | None = None
        self._kind, self._since = "", 0.0
        self.seconds: dict[str, list[float]] = {"step": [], "epoch": [], "checkpoint": [], "end": []}
        self.began = 0.0

    def start(self, batch: Sequence[Start], number: int, share: bool) -> tuple[Started, ...]:
        for start in batch:
            self._running[start.job] = start
        return tuple(Started(start.job, 0, "data/0") for start in batch)

    def stop(self, job: str, why: StopReason) -> None:
        start = self._running.pop(job)
        self._stopped.append(GroupEnded(job, start.devices, "stopped", why, start.epoch, start.step))

    def measure(self, job: str, devices: tuple[int, ...]) -> None:
        raise AssertionError("all rates are known")

    def save_held(self) -> bool:
        return False

    def next_event(self, timeout: float) -> Event | None:
        if self._kind and not self._stopped:
            self.seconds[self._kind].append(thread_time() - self._since)
            self._kind = ""
        if self._stopped:
            return self._stopped.popleft()
        if self._events is None:
            self.began, self._events = thread_time(), self.said()
        self._kind, event = next(self._events, ("", None))
        if event is None:
            raise _AllMeasured
        self._clock.now += SECONDS_A_MESSAGE
        self._since = thread_time()
        return event

    def said(self) -> Iterator[tuple[str, Event]]:
        names = list(self._running)[:MEASURED]
        metrics = {"loss": 1.0, "accuracy": 0.5}
        for job in names:
            yield "step", AtStep(job, 0, 1, 100, 10.0)
        for job in names:
            yield "epoch", EpochEnded(job, 1, 100, 100.0, 10.0, metrics, 0.1, (0.1,), (0.1,), (90.0,))
        for job in names:
            yield "checkpoint", CheckpointWritten(job, 1, 0, f"checkpoints/{job}/epoch-00001", 1000, 0.1, "abcd")
        for job in names[:ENDS]:
            if job in self._running:
                devices = self._running.pop(job).devices
                yield "end", GroupEnded(job, devices, "done", "epochs", 3, 0, waited_data=(0.0,), computed=(1.0,))
