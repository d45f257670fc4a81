"""Carries measurements out on the live machine: several jobs at the same time on disjoint devices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fleet.coordination.errors import RunError
from fleet.coordination.protocol import (
    TO_PREPROCESSOR,
    TO_TRAINER,
    Left,
    Mailbox,
    MeasureThroughput,
    Message,
    Profiled,
    ProfileGroup,
    SampleSkipped,
    StopRequested,
    Throughput,
)
from fleet.machine.cluster_map import ClusterMap
from fleet.machine.signals import StopFlag
from fleet.profiling.plan import Measurement


@dataclass(frozen=True)
class Result:
    """One measurement's outcome: a rate, or the failure of the job."""

    measurement: Measurement
    devices: tuple[int, ...]
    rate: float
    batches: int
    seconds: float
    failure: Left | None = None
    forming: float = 0.0  # seconds


@dataclass
class Profiler:
    """Hands measurements to free devices until none is left.

    Args:
        mailbox: the coordinator's.
        cluster: the cluster map.
        batches, timed: steps of a measurement, and how many of the last are timed (48 and 20 in FLEET, Appendix B.3).
        budget_seconds: a slow job stops warming up and timing after so long.
        silence: seconds without any word after which the run is ended.
        next_tag: fresh tags for groups.
        failure: of the thread that makes samples on this rank; looked at while waiting, and raised.
        stop: raised when another rank got a signal.
        is_late: told how many seconds a measurement takes at most, says whether there is no time for another one.
        skipped: takes the samples that preprocessors skip.
    """

    mailbox: Mailbox
    cluster: ClusterMap
    batches: int
    timed: int
    budget_seconds: float
    silence: float
    next_tag: Callable[[], int]
    failure: Callable[[], BaseException | None]
    stop: StopFlag
    is_late: Callable[[float], bool]
    skipped: Callable[[SampleSkipped], None]
    _devices: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _wanted: dict[str, Measurement] = field(default_factory=dict)
    _left: dict[str, list[Left]] = field(default_factory=dict)
    _rates: dict[str, Profiled] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)
    _longest: float = 0.0  # seconds that a measurement took, forming and all

    def measure(self, wanted: Iterable[Measurement]) -> Iterator[Result]:
        """Carry out all of `wanted`, as many at a time as fit, and yield each result as it comes.

        No further measurement is begun once a stop was asked for, nor one of a job that failed with its own batch.
        """
        waiting = list(wanted)
        while waiting or self._devices:
            if waiting and self.is_late(max(self._longest, self.budget_seconds)):
                waiting = []
            self._fill(waiting)
            if not self._devices:
                break
            result = self._next()
            if result is not None:
                if result.failure is not None and not result.measurement.batch_size:
                    waiting = [x for x in waiting if x.job != result.measurement.job]
                yield result

    def throughput(self, data: Sequence[str], counts: Iterable[int], seconds: float) -> dict[int, float]:
        """Samples/s that 1, 2, ... preprocessors make at the same time, the data sets taken in turn."""
        ranks = [place.rank for place in self.cluster.preprocessors]
        made = {}
        for count in counts:
            for index, rank in enumerate(ranks[:count]):
                message = MeasureThroughput(data[index % len(data)], seconds)
                self.mailbox.send(rank, TO_PREPROCESSOR, message)
            made[count] = self._throughput_of(set(ranks[:count]))
        return made

    def _throughput_of(self, ranks: set[int]) -> float:
        """What these preprocessors make together.

        Raises:
            RunError: one of them does not answer.
        """
        total = 0.0
        while ranks:
            message = self._receive()
            if not isinstance(message, Throughput):
                raise RunError(
                    f"no word for {self.silence:g} s from the preprocessors of rank {', '.join(map(str, ranks))}, "
                    "whose speed is measured: a source of data may be stuck there; if one sample really takes so "
                    f"long, raise resources.timeout (now {self.silence:g} s)"
                )
            ranks = ranks - {message.rank}
            total += message.samples_per_second
        return total

    def _fill(self, waiting: list[Measurement]) -> None:
        """Start every measurement that fits the free devices; one of a job at a time."""
        for wanted in list(waiting):
            held = {device for devices in self._devices.values() for device in devices}
            free = [device for device in range(len(self.cluster.trainers)) if device not in held]
            if wanted.count <= len(free) and wanted.job not in self._devices:
                waiting.remove(wanted)
                self._send(wanted, tuple(free[: wanted.count]))

    def _send(self, wanted: Measurement, devices: tuple[int, ...]) -> None:
        members = tuple(self.cluster.rank_of(device) for device in devices)
        message = ProfileGroup(
            wanted.job, members, self.next_tag(), self.batches, self.timed, self.budget_seconds, wanted.batch_size
        )
        for rank in members:
            self.mailbox.send(rank, TO_TRAINER, message)
        self._devices[wanted.job], self._wanted[wanted.job] = devices, wanted
        self._left[wanted.job], self._began[wanted.job] = [], time.monotonic()

    def _next(self) -> Result | None:
        """Take one message; a measurement has ended when all members have left."""
        message = self._receive()
        if isinstance(message, Profiled):
            self._rates[message.job] = message
            return None
        if not isinstance(message, Left):
            waiting = ", ".join(f"{job} on devices {devices}" for job, devices in self._devices.items())
            raise RuntimeError(f"profiling: no word for {self.silence:.0f} s from {waiting} (got {message!r})")
        self._left[message.job].append(message)
        if len(self._left[message.job]) < len(self._devices[message.job]):
            return None
        return self._result(message.job)

    def _receive(self) -> Message | None:
        """The next message about measurements; None if none came in time."""
        deadline = time.monotonic() + self.silence
        while True:
            message = self.mailbox.receive(deadline - time.monotonic(), until=lambda: self.failure() is not None)
            failure = self.failure()
            if failure is not None:
                raise failure
            if isinstance(message, SampleSkipped):
                self.skipped(message)
            elif isinstance(message, StopRequested):
                self.stop.raised = True
            else:
                return message

    def _result(self, job: str) -> Result:
        devices, left, rate = self._devices.pop(job), self._left.pop(job), self._rates.pop(job, None)
        self._longest = max(self._longest, time.monotonic() - self._began.pop(job))
        failures = [x for x in left if x.why == "failed"]
        measurement = self._wanted.pop(job)
        if rate is None or failures:
            return Result(measurement, devices, 0.0, 0, 0.0, failures[0] if failures else left[0])
        return Result(measurement, devices, rate.rate, rate.batches, rate.seconds, forming=rate.forming)
