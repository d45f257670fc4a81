"""Where a run's rate curves come from: a file, the run's own earlier profile, or measurements now."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from fleet.coordination.failures import CannotGoOnError, SilentGroupError
from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import Recorder
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
from fleet.journal import events
from fleet.journal.whole_files import RateProfile
from fleet.machine.cluster_map import ClusterMap
from fleet.machine.launch.launched import StopFlag
from fleet.scheduling.model.rates import RateCurve
from preprocess.making.costs import MadeRates

THROUGHPUT_SECONDS = 0.5


Rates = Mapping[str, Mapping[int, float]]
"""Job -> number of devices -> samples/s."""


@dataclass
class Rating:
    """Gives every job of the books a rate curve on each kind of device.

    Args:
        profiler: measures; None if measuring is not to be done (a rehearsal brings all rates).
        books: measurements are written there; unfinished jobs are rated.
        known: by kind of device, the rates from files or an earlier session; "" where all are alike.
        begun: by kind, the rates of jobs that a session measured which was stopped before it had all of them.
        guess: guesses the curves by kind of a job that is to be measured in training; None: all are measured now.
        first: jobs with guesses that are measured now all the same.
    """

    profiler: Profiler | None
    books: Recorder
    known: Mapping[str, Rates]
    begun: Mapping[str, Rates] = field(default_factory=dict)
    guess: Callable[[str], Mapping[str, RateCurve]] | None = None
    first: Collection[str] = ()
    measured: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)  # kind -> job -> count -> samples/s
    failures: dict[str, MeasurementResult] = field(default_factory=dict)
    guessed: frozenset[str] = frozenset()
    throughput: dict[int, float] = field(default_factory=dict)

    def rate(self) -> None:
        """Tell the books each job's rate curves; a job whose code fails while it is measured gets none, and is in
        `failures`.
        """
        jobs = [job.name for job in self.books.state.unfinished]
        self.measured = {kind: {job: dict(rates.get(job, {})) for job in jobs} for kind, rates in self.known.items()}
        for kind, rates in self.measured.items():
            begun = self.begun.get(kind, {})
            rates.update({job: dict(begun.get(job, {})) for job in jobs if not rates[job] and self._waits(job)})
        unknown = {
            kind: [job for job in jobs if not rates[job] and not self._waits(job)]
            for kind, rates in self.measured.items()
        }
        if self.profiler is not None and any(unknown.values()):
            self._measure(unknown)
            if self.is_stopped:
                return  # what is measured already stands in the journal: the next session goes on with it
        for job in jobs:
            curves = self._curves(job)
            if curves:
                measured = any(job in names for names in unknown.values())
                self.books.record_rates(job, self.books.state.completed(curves), "profile" if measured else "file")
        self.guessed = frozenset(job for job in jobs if self._waits(job) and not self._curves(job))
        if self.guess is not None:
            for job in filter(self.guessed.__contains__, jobs):
                self.books.record_rates(job, self.guess(job), "guessed")

    def _waits(self, job: str) -> bool:
        """Whether a job is not measured before it trains."""
        return self.guess is not None and job not in self.first

    @property
    def is_stopped(self) -> bool:
        """Whether measurements were left out, since a stop was asked for."""
        return self.profiler is not None and self.profiler.is_stopped

    def _curves(self, job: str) -> dict[str, RateCurve]:
        ledger = self.books.state
        return {
            kind: RateCurve(rates[job], per_node=ledger.cluster.per_node(kind), workers=ledger.jobs[job].limit)
            for kind, rates in self.measured.items()
            if rates.get(job)
        }

    def _measure(self, unknown: Mapping[str, list[str]]) -> None:
        """Steps 1 to 3 of FLEET, MLSys'20, Appendix B.3, on each kind of device."""
        assert self.profiler is not None
        for kind, jobs in unknown.items():
            begun = self.begun.get(kind, {})
            self.measured[kind].update({job: dict(begun.get(job, {})) for job in jobs})
        alone = [each for kind, jobs in unknown.items() for each in first_pass(jobs, kind)]
        self._take(self.profiler.measure(self._missing(alone)))
        wider = [each for kind, jobs in unknown.items() for each in self._second_pass(kind, jobs)]
        if wider:
            self._take(self.profiler.measure(self._missing(wider)))

    def _second_pass(self, kind: str, jobs: Collection[str]) -> list[Measurement]:
        single = {job: rates[1] for job, rates in self.measured[kind].items() if job in jobs and 1 in rates}
        if not single:
            return []
        cluster, known = self.books.state.cluster, self.books.state.jobs
        limits, there = {job: known[job].limit for job in single}, cluster.counts().get(kind, cluster.size)
        return second_pass(single, limits, cluster.per_node(kind), there, kind)

    def _missing(self, wanted: Iterable[Measurement]) -> list[Measurement]:
        return [each for each in wanted if each.count not in self.measured[each.kind][each.job]]

    def _take(self, results: Iterable[MeasurementResult]) -> None:
        for result in results:
            job, count, kind = result.measurement.job, result.measurement.count, result.measurement.kind
            if result.failure is not None:
                self.failures.setdefault(job, result)
                for rates in self.measured.values():
                    rates[job] = {}
                continue
            self.measured[kind][job][count] = result.rate
            self.books.record(
                events.Profile(
                    job=job,
                    devices=result.devices,
                    count=count,
                    rate=result.rate,
                    batches=result.batches,
                    seconds=result.seconds,
                    forming=result.forming,
                    kind=kind,
                )
            )

    def choose_preprocessors(
        self,
        data: list[str],
        available: int,
        streams: Mapping[str, str],
        share: bool,
        lent: int = 0,
        weighed: bool = False,
    ) -> int:
        """How many preprocessors the trainers need: the fewest that meet the demand, at most those there are.

        As long as rates are guesses nobody knows the demand; then all are needed, and they are timed if there are
        several, or trainers that may help (`lent`), for those who choose later, or several data sets, if the policy
        weighs what each takes of them (`weighed`).
        """
        single: dict[str, float] = {}
        for of_kind in self.measured.values():
            for job, rates in of_kind.items():
                single[job] = max(rates.get(1, 0.0), single.get(job, 0.0))
        jobs = self.books.state.jobs
        single = {job: rate * jobs[job].state.passing for job, rate in single.items() if rate}
        known = bool(single) if not self.guessed else available + lent > 1 or (weighed and len(data) > 1)
        if self.profiler is None or not known or self.is_stopped:
            return available
        counts = sorted({1, available, *(2**k for k in range(1, 12) if 2**k < available)})
        made = self.profiler.throughput(data, counts, THROUGHPUT_SECONDS)
        self.throughput = {count: each.later for count, each in made.items()}
        of_data = self._of_data(data, available, made[available])
        wanted = None if self.guessed else demand(single, streams, self.books.state.cluster.size, share)
        chosen = available if wanted is None else preprocessors_needed(self.throughput, wanted)
        self.books.record(
            events.Preprocessors(
                counts=self.throughput,
                of_data={name: each.later for name, each in of_data.items()},
                of_new={name: each.first for name, each in of_data.items()},
                demand=wanted,
                chosen=chosen or available,
            )
        )
        if chosen is None and wanted is not None:
            best = max(self.throughput.values())
            self.books.journal.write(
                events.Warned(
                    text=f"the trainers could eat {wanted:.0f} samples/s, {available} preprocessors make {best:.0f}: "
                    f"they will wait for data; give about {round(available * wanted / best + 0.5)} preprocessors"
                )
            )
        return chosen or available

    def _of_data(self, data: list[str], available: int, of_all: MadeRates) -> dict[str, MadeRates]:
        """What all preprocessors make of each data set, if they make nothing else."""
        assert self.profiler is not None
        if len(data) == 1:
            return {data[0]: of_all}
        return {name: self.profiler.throughput([name], [available], THROUGHPUT_SECONDS)[available] for name in data}

    def profile(self, fingerprints: Mapping[str, Mapping[str, str]]) -> RateProfile:
        """All that is known now, to be stored and used again.

        Args:
            fingerprints: by kind of device and job.
        """
        keys = {(kind, job): fingerprints[kind][job] for kind, rates in self.measured.items() for job in rates}
        rates = {key: self.measured[kind][job] for (kind, job), key in keys.items() if self.measured[kind][job]}
        names = {key: job for (_, job), key in keys.items()}
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return RateProfile(platform.node(), now, rates, names, self.throughput)


@dataclass(frozen=True, order=True)
class Measurement:
    """Time `job` on `count` devices of a kind, "" where all are alike.

    Attributes:
        batch_size: a virtual worker's; 0: its own.
        most: above 0, find the largest batch of a worker that fits, up to this, in place of timing.
        together: the devices are trainers of one accelerator, on which nobody else trains.
    """

    job: str
    count: int
    batch_size: int = 0
    kind: str = ""
    most: int = 0
    together: bool = False


def first_pass(jobs: Collection[str], kind: str = "") -> list[Measurement]:
    """Step 1: each job on a single device, R(1)."""
    return [Measurement(job, 1, kind=kind) for job in jobs]


def largest_count(single: Mapping[str, float], per_node: int) -> int:
    """M_t = max(M_a, M_b): M_a = ceil(max R(1) / min R(1)) brings the slowest job up to the fastest, M_b = 2 nodes.

    Args:
        single: r_i(1), samples/s, of each job.
        per_node: devices of a node.
    """
    m_a = math.ceil(max(single.values()) / min(single.values()))
    m_b = 2 * per_node
    return max(m_a, m_b)


def second_pass(
    single: Mapping[str, float], limits: Mapping[str, int], per_node: int, devices: int, kind: str = ""
) -> list[Measurement]:
    """Step 3: each job on 2 .. M_t devices of a kind, as far as the machine and the job's virtual workers reach.

    Widest first, so that narrow measurements fill the devices that wide ones leave free.
    """
    most = min(largest_count(single, per_node), devices)
    wanted = [Measurement(job, m, kind=kind) for job in single for m in range(2, min(most, limits[job]) + 1)]
    return sorted(wanted, key=lambda x: (-x.count, x.job))


def preprocessors_needed(throughput: Mapping[int, float], demand: float) -> int | None:
    """The fewest preprocessors whose samples/s meet `demand`; None if no measured count does."""
    enough = [count for count, rate in sorted(throughput.items()) if rate >= demand]
    return enough[0] if enough else None


def demand(single: Mapping[str, float], streams: Mapping[str, str], devices: int, share: bool) -> float:
    """Samples/s that the trainers can eat, one job on each device.

    Args:
        single: r_i(1) of each job, samples/s.
        streams: the stream of each job; jobs with the same one share its samples.
        devices: how many jobs can run at once.
        share: whether the policy shares streams. Members of a shared stream are paced together, so it is eaten at the
            rate of its fastest member at most; without sharing every job eats its own.
    """
    if not share:
        return sum(sorted(single.values(), reverse=True)[:devices])
    fastest: dict[str, float] = {}
    for job, rate in single.items():
        fastest[streams[job]] = max(rate, fastest.get(streams[job], 0.0))
    return sum(sorted(fastest.values(), reverse=True)[:devices])


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
        self,
        mailbox: Mailbox,
        cluster: ClusterMap,
        effort: Effort,
        waiting: Waiting,
        next_tag: Callable[[], int],
        is_late: Callable[[float], bool],
    ) -> None:
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


PROBES = 4
"""Batches that are tried between one that fits on a device and one that does not."""


@dataclass
class BatchEnds:
    """Tells the books how fast a job trains alone with the least and the most samples that it may have in a step.

    Between these and the job's own batch a policy goes by `BatchScaling`. Where the largest batch cannot be trained, as
    it does not fit on the device, the largest that does is looked for: a job whose batch changes cuts larger ones
    into parts, and a job that chooses once has its range end with its own batch.

    Args:
        profiler: measures; None: there is nothing to measure with.
        books: measurements are written there.
        known: job, samples of a virtual worker -> samples/s, where an earlier session has measured it.
        listed: job -> samples of a step -> samples/s, where a person has listed them.
    """

    profiler: Profiler | None
    books: Recorder
    known: Callable[[str, int], float | None]
    listed: Callable[[str], Mapping[int, float]] = lambda job: {}
    measured: dict[tuple[str, int], float] = field(default_factory=dict)

    def rate(self) -> None:
        """Rate the jobs that have a rate curve and may still choose."""
        wanted = []
        for job in self.books.state.unfinished:
            if job.batches is not None and job.curve is not None:
                self._take_listed(job)
                wanted += [self._measurement(job, size) for size in _ends(job) if not self._is_known(job, size)]
        for result in list(self.profiler.measure(wanted)) if self.profiler is not None else ():
            self._book(self.books.state.jobs[result.measurement.job], result)

    def _take_listed(self, job: JobRecord) -> None:
        for batch, rate in self.listed(job.name).items():
            if batch != job.batch:
                self.books.note(self.books.state.rated_with, job.name, batch, rate)

    def _is_known(self, job: JobRecord, size: int) -> bool:
        if self.profiler is None or size * job.limit in self.books.state.jobs[job.name].alone:
            return True
        rate = self.known(job.name, size)
        if rate is not None:
            self.measured[job.name, size] = rate
            self.books.note(self.books.state.rated_with, job.name, size * job.limit, rate)
        return rate is not None

    def _measurement(self, job: JobRecord, size: int) -> Measurement:
        return Measurement(job.name, 1, size, job.by_kind.home if job.by_kind else "")

    def _book(self, job: JobRecord, result: MeasurementResult) -> None:
        size = result.measurement.batch_size
        if result.failure is not None:
            self._meet_limit(job, size, result.failure.error)
            return
        self.measured[job.name, size] = result.rate
        self.books.record(
            events.BatchProfile(
                job=job.name,
                devices=result.devices,
                batch=size * job.limit,
                rate=result.rate,
                batches=result.batches,
                seconds=result.seconds,
            )
        )

    def _meet_limit(self, job: JobRecord, size: int, error: str) -> None:
        """A step with `size` samples of each worker cannot be trained on a device."""
        assert job.batches is not None and job.batch is not None
        batch, why = size * job.limit, f"a step of {size * job.limit} samples cannot be trained on a device ({error})"
        if job.schedule is not None and batch > job.batch:
            fitting = self._largest(job, job.batch // job.limit, size)
            self.books.note(self.books.state.fits, job.name, fitting)
            text = f"{why}; batches of more than {fitting * job.limit} are cut into parts"
        else:
            least, most = (job.batch, job.batches.most) if batch < job.batch else (job.batches.least, job.batch)
            self.books.note(self.books.state.range_cut, job.name, least, most)
            text = f"{why}; its range of batches is cut there"
        self.books.journal.write(events.Warned(text=text, job=job.name))

    def _largest(self, job: JobRecord, fits: int, fails: int) -> int:
        """The most samples of a worker that were seen to fit; the gap to those that do not is halved a few times."""
        assert self.profiler is not None
        for _ in range(PROBES):
            middle = (fits + fails) // 2
            if middle == fits:
                break
            for result in list(self.profiler.measure([self._measurement(job, middle)])):
                if result.failure is None:
                    fits = middle
                    self._book(job, result)
                else:
                    fails = middle
        return fits


def _ends(job: JobRecord) -> Iterator[int]:
    """Samples of a virtual worker at the ends of the range, other than the job's own."""
    assert job.batches is not None and job.batch is not None
    for size in dict.fromkeys(job.batches.sizes):
        if size * job.limit != job.batch:
            yield size


@dataclass
class ExecutorRates:
    """Tells the books how fast a job is with 1, 2, ... executors on an accelerator (EasyScale, SC'23, 3.4.1).

    Args:
        profiler: measures; None if measuring is not to be done.
        books: what is measured or known is written there.
        known: job -> executors -> samples/s, as far as a file or an earlier session has them.
        most: executors on an accelerator; 1: nothing is measured.
        measured: job -> executors -> samples/s, what is known in the end.
    """

    profiler: Profiler | None
    books: Recorder
    known: Callable[[str], Mapping[int, float]]
    most: int
    measured: dict[str, dict[int, float]] = field(default_factory=dict)

    def rate(self) -> None:
        """A job of which one measurement fails keeps to the executors that were measured before."""
        if self.most == 1:
            return
        jobs = [job for job in self.books.state.unfinished if job.curve is not None]
        self.measured = {job.name: dict(self.known(job.name)) for job in jobs}
        wanted = [one for job in jobs for one in self._missing(job)]
        for result in self.profiler.measure(wanted) if self.profiler is not None else ():
            if result.failure is None:
                self.measured[result.measurement.job][result.measurement.count] = result.rate
        for job in jobs:
            self._tell(job)

    def _missing(self, job: JobRecord) -> Iterator[Measurement]:
        for count in range(1, min(self.most, job.limit) + 1):
            if count not in self.measured[job.name]:
                yield Measurement(job.name, count, kind=job.by_kind.home if job.by_kind else "", together=True)

    def _tell(self, job: JobRecord) -> None:
        rates = self.measured[job.name]
        for count in range(1, min(self.most, job.limit) + 1):
            if count not in rates:
                break
            self.books.record(events.ExecutorProfile(job=job.name, executors=count, rate=rates[count]))
