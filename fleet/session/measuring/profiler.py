"""Carries measurements out on the live machine: several jobs at the same time on disjoint devices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fleet.coordination.failures import CannotGoOnError, SilentGroupError
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import (
    TO_PREPROCESSOR,
    TO_TRAINER,
    FindLargest,
    Fits,
    KeepBusy,
    Left,
    MeasureThroughput,
    Message,
    Profiled,
    ProfileGroup,
    SampleRate,
    SampleSkipped,
    SampleTorn,
    StopRequested,
)
from fleet.machine.cluster_map import ClusterMap
from fleet.machine.launch.launched import StopFlag
from fleet.session.measuring.plan import Measurement
from preprocess.making.costs import MadeRates


@dataclass(frozen=True)
class MeasurementResult:
    """One measurement's outcome: a rate, the batch that fits, or the failure of the job."""

    measurement: Measurement
    devices: tuple[int, ...]
    rate: float
    batches: int
    seconds: float
    failure: Left | None = None
    forming: float = 0.0  # seconds
    fits: Fits | None = None


@dataclass(frozen=True)
class Effort:
    """What a measurement may cost.

    Attributes:
        batches, timed: steps, and how many of the last are timed (48 and 20 in FLEET, MLSys'20, Appendix B.3).
        seconds: a slow job stops warming up and timing after so long.
    """

    batches: int
    timed: int
    seconds: float


@dataclass(frozen=True)
class Waiting:
    """What is looked at while words are waited for.

    Attributes:
        silence: seconds without any word after which the run is ended.
        failure: what ends the run on this rank; it is raised.
        stop: raised when another rank got a signal.
        skipped: takes the samples that preprocessors skip, or cannot make.
    """

    silence: float
    failure: Callable[[], BaseException | None]
    stop: StopFlag
    skipped: Callable[[SampleSkipped | SampleTorn], None]


@dataclass
class _Running:
    """A measurement that is under way."""

    wanted: Measurement
    devices: tuple[int, ...]
    began: float
    left: list[Left] = field(default_factory=list)
    word: Profiled | Fits | None = None


class Profiler:
    """Hands measurements to free devices until none is left.

    Where trainers share an accelerator, those that nobody measures train beside the others there.

    Args:
        mailbox: the coordinator's.
        cluster: the cluster map.
        effort: what one measurement costs.
        waiting: for words of other ranks.
        next_tag: gives fresh tags for groups.
        is_late: told how many seconds a measurement takes at most, says whether there is no time for another one.
    """

    def __init__(
        self, mailbox: Mailbox, cluster: ClusterMap, effort: Effort, waiting: Waiting, next_tag: Callable[[], int],
        is_late: Callable[[float], bool],
    ) -> None:  # fmt: skip
        self._mailbox, self._cluster, self._effort, self._waiting = mailbox, cluster, effort, waiting
        self._next_tag, self._is_late = next_tag, is_late
        self._running: dict[str, _Running] = {}  # by job
        self._sharing, self._busy = cluster.sharing, set[int]()  # the devices that were told to keep busy
        self._longest = 0.0  # seconds that a measurement took, forming and all

    @property
    def is_stopped(self) -> bool:
        """Whether a stop was asked for."""
        return self._waiting.stop.raised

    def measure(self, wanted: Iterable[Measurement]) -> Iterator[MeasurementResult]:
        """Carry out all of `wanted`, as many at a time as fit, and yield each result as it comes.

        No further measurement is begun once a stop was asked for, nor one of a job that failed with its own batch.
        """
        waiting = list(wanted)
        while waiting or self._running:
            if waiting and self._is_late(max(self._longest, self._effort.seconds)):
                waiting = []
            self._fill(waiting)
            if not self._running:
                break
            result = self._next()
            if result is not None:
                if result.failure is not None and not result.measurement.batch_size:
                    waiting = [x for x in waiting if x.job != result.measurement.job]
                yield result
        self._accompany()

    def throughput(self, data: Sequence[str], counts: Iterable[int], seconds: float) -> dict[int, MadeRates]:
        """What 1, 2, ... preprocessors make at the same time, the data sets taken in turn."""
        ranks = [place.rank for place in self._cluster.preprocessors]
        made = {}
        for count in counts:
            for index, rank in enumerate(ranks[:count]):
                message = MeasureThroughput(data[index % len(data)], seconds)
                self._mailbox.send(rank, TO_PREPROCESSOR, message)
            made[count] = self._throughput_of(set(ranks[:count]))
        return made

    def _throughput_of(self, ranks: set[int]) -> MadeRates:
        """What these preprocessors make together.

        Raises:
            RunError: one of them does not answer.
        """
        first, later, silence = 0.0, 0.0, self._waiting.silence
        while ranks:
            message = self._receive()
            if not isinstance(message, SampleRate):
                raise CannotGoOnError(
                    f"no word for {silence:g} s from the preprocessors of rank {', '.join(map(str, ranks))}, "
                    "whose speed is measured: a source of data may be stuck there; if one sample really takes so "
                    f"long, raise resources.timeout (now {silence:g} s)"
                )
            ranks = ranks - {message.rank}
            first, later = first + message.while_new, later + message.samples_per_second
        return MadeRates(first, later)

    def _fill(self, waiting: list[Measurement]) -> None:
        """Start every measurement that fits the free devices; one of a job at a time."""
        for wanted in list(waiting):
            free = self._free(wanted)
            if wanted.count <= len(free) and wanted.job not in self._running:
                waiting.remove(wanted)
                self._send(wanted, tuple(free[: wanted.count]))
        self._accompany()

    def _free(self, wanted: Measurement) -> list[int]:
        """Devices on which it could be measured now; of one accelerator that rests, where it has that for itself."""
        held = {device for running in self._running.values() for device in running.devices}
        for sharing in self._sharing:
            alone = any(run.wanted.together for run in self._running.values() if set(run.devices) & set(sharing))
            held |= set(sharing) if alone else set()
        if wanted.together:
            return next((list(devices) for devices in self._sharing if held.isdisjoint(devices)), [])
        return [device for device in self._cluster.devices_of(wanted.kind) if device not in held]

    def _accompany(self) -> None:
        """Let devices train beside what is measured on their accelerator, or rest once nothing is."""
        measured = {device: running.wanted for running in self._running.values() for device in running.devices}
        for sharing in self._sharing:
            timed = [measured[device] for device in sharing if device in measured and not measured[device].most]
            wanted = timed[0] if timed and not timed[0].together else None
            order = KeepBusy(wanted.job, wanted.batch_size) if wanted else KeepBusy()
            for device in sharing:
                if device not in measured and (wanted is not None) != (device in self._busy):
                    self._mailbox.send(self._cluster.rank_of(device), TO_TRAINER, order)
                    self._busy ^= {device}

    def _send(self, wanted: Measurement, devices: tuple[int, ...]) -> None:
        members, effort = tuple(self._cluster.rank_of(device) for device in devices), self._effort
        self._busy -= set(devices)
        message: FindLargest | ProfileGroup = (
            FindLargest(wanted.job, wanted.most, effort.seconds)
            if wanted.most
            else ProfileGroup(
                wanted.job, members, self._next_tag(), effort.batches, effort.timed, effort.seconds, wanted.batch_size
            )
        )
        for rank in members:
            self._mailbox.send(rank, TO_TRAINER, message)
        self._running[wanted.job] = _Running(wanted, devices, time.monotonic())

    def _next(self) -> MeasurementResult | None:
        """Take one message; a measurement has ended when all members have left."""
        message = self._receive()
        if message is None:
            waiting = ", ".join(f"{job} on devices {running.devices}" for job, running in self._running.items())
            text = f"profiling: no word for {self._waiting.silence:.0f} s from {waiting}"
            raise SilentGroupError(text, *self._running)
        if not isinstance(message, (Profiled, Fits, Left)):
            raise RuntimeError(f"profiling: {message!r} is no word about a measurement")
        running = self._running[message.job]
        if isinstance(message, (Profiled, Fits)):
            running.word = message
            return None
        running.left.append(message)
        return self._result(message.job) if len(running.left) == len(running.devices) else None

    def _receive(self) -> Message | None:
        """The next message about measurements; None if none came in time."""
        deadline, failure = time.monotonic() + self._waiting.silence, self._waiting.failure
        while True:
            message = self._mailbox.receive(deadline - time.monotonic(), until=lambda: failure() is not None)
            if (error := failure()) is not None:
                raise error
            if isinstance(message, (SampleSkipped, SampleTorn)):
                self._waiting.skipped(message)
            elif isinstance(message, StopRequested):
                self._waiting.stop.raised = True
            else:
                return message

    def _result(self, job: str) -> MeasurementResult:
        over = self._running.pop(job)
        self._longest = max(self._longest, time.monotonic() - over.began)
        failures = [word for word in over.left if word.why == "failed"]
        word = over.word
        if word is None or failures:
            return MeasurementResult(over.wanted, over.devices, 0.0, 0, 0.0, (failures or over.left)[0])
        if isinstance(word, Fits):
            return MeasurementResult(over.wanted, over.devices, 0.0, word.tries, word.seconds, fits=word)
        return MeasurementResult(over.wanted, over.devices, word.rate, word.batches, word.seconds, forming=word.forming)
