"""Machines that a simulation plays: measured rates, what a move costs, and a job as it arrives there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.traces.table import TraceError, TraceProblem, advice_on
from fleet.simulator.traces.trace import Trace, TraceJob


class UnknownRate(ValueError):
    """No rate was measured for the question; the text names the known ones."""


class Rates(Protocol):
    """Steps per second of a job, by the number of its devices."""

    def of(self, job: TraceJob, limit: int) -> Floats:
        """Steps/s of the job's whole batch on 1, 2, ..., `limit` devices; float64 of shape (limit,), read-only.

        Raises:
            UnknownRate: the job's model or batch size was not measured.
        """
        ...

    def machine(self, cluster: Cluster, costs: Costs, guaranteed: int | None = None) -> Machine:
        """The machine of this cluster on which jobs are as fast as these rates say.

        On a cluster without kinds each job has the rates of its own kind.

        Args:
            guaranteed: priority from which a job is a guaranteed one; None: none is.

        Raises:
            ValueError: the rates do not know a kind of device that the cluster has, or have no guaranteed jobs.
        """
        ...


class RunRates:
    """The rate curves that a run measured, by job: `Trace.curves` of its journal.

    Args:
        curves: by job; further ones may come.
    """

    def __init__(self, curves: Mapping[str, RateCurve]) -> None:
        self._curves = curves

    def of(self, job: TraceJob, limit: int) -> Floats:
        """As `Rates.of`."""
        curve = self._curves.get(job.name)
        if curve is None or job.batch_size is None:
            raise UnknownRate(f"the run measured no rates of job {job.name!r}; {advice_on(job.name, self._curves)}")
        rates: Floats = curve.rates(limit) / job.batch_size
        rates.flags.writeable = False
        return rates

    def machine(self, cluster: Cluster, costs: Costs, guaranteed: int | None = None) -> MeasuredMachine:
        """As `Rates.machine`."""
        return MeasuredMachine(cluster, self, costs, guaranteed)


def check_rates(trace: Trace, rates: Rates) -> None:
    """Check that there are rates for every job of a trace.

    Raises:
        TraceError: with every job that has none, each model and batch size told of once.
    """
    seen: dict[tuple[str, float], int] = {}
    jobs = trace.jobs
    for i, key in enumerate(zip(jobs.model, np.nan_to_num(jobs.batch_size).tolist())):
        seen.setdefault(key, i)
    problems = [problem for i in seen.values() if (problem := _problem(trace, jobs[i], rates))]
    if problems:
        raise TraceError(problems)


def unknown(what: str, value: object, known: Iterable[object]) -> UnknownRate:
    """The error that says what is known instead."""
    names = list(known)
    if isinstance(value, (int, float)) and names:
        close = min((float(str(name)) for name in names), key=lambda number: abs(number - value))
        return UnknownRate(f"{what} {value} was not measured; nearest: {close:g}; known: {', '.join(map(str, names))}")
    return UnknownRate(f"{what} {value!r} was not measured; {advice_on(str(value), names)}")


def _problem(trace: Trace, job: TraceJob, rates: Rates) -> TraceProblem | None:
    try:
        rates.of(job, 1)
    except UnknownRate as error:
        mend = "name another table of rates, or leave the job out"
        value = f"{job.model} {job.batch_size or ''}".strip()
        return TraceProblem(trace.file, f"job {job.name}: {error}", mend, job.line, "model", value)
    return None


@dataclass(frozen=True)
class Costs:
    """Seconds that a job does not train.

    Args:
        start: when it gets devices for the first time.
        restart: when it gets other devices, or some after it had none.
        promised: what policies are told that either takes at least, as a run does until it has measured more.

    Raises:
        ValueError: a number that is negative or not finite.
    """

    start: float = 0.0
    restart: float = 0.0
    promised: float = 0.0

    def __post_init__(self) -> None:
        for name in ("start", "restart", "promised"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value} s; it must be 0 or more, and finite")

    @property
    def most(self) -> float:
        """What any getting of devices costs at most, as far as policies know."""
        return max(self.start, self.restart, self.promised)

    def delay(self, job: JobState) -> float:
        """Seconds from getting devices now to the job's first step on them."""
        return self.restart if job.attained else self.start


def arrived(
    job: TraceJob,
    curve: RateCurve,
    limit: int,
    samples: float,
    costs: Costs,
    guaranteed: int | None = None,
    **known: Any,
) -> JobState:
    """The job at its arrival on a machine.

    Args:
        job: as the trace tells of it.
        curve: its samples/s by devices there.
        limit: most devices that it can use there.
        samples: to train.
        costs: costs of moves, which promises must count.
        guaranteed: priority from which a job is a guaranteed one; None: none is.
        known: fields of `JobState` that this machine knows better than the trace.
    """
    fields: dict[str, Any] = {
        "stream": job.stream,
        "data": job.stream.rpartition("/")[0] or job.stream,
        "mixed_kinds": job.mixed,
        "soft": job.soft,
        "arrival": job.arrival,
        "deadline": math.inf if job.deadline is None else job.deadline,
        "gang": job.devices,
        "minimum_devices": job.minimum_devices or 1,
        "priority": job.priority,
        "guaranteed": guaranteed is not None and job.priority >= guaranteed,
        "kind": job.kind,
        "tenant": job.tenant,
        "service_level": job.service_level,
        "batch": job.batch_size,
        "remaining": samples,
        "further": job.further,
        "epoch": samples / job.epochs if job.epochs else 0.0,
        "since": job.arrival,
        "ready": job.arrival,
        "restart": costs.most,
    }
    return JobState(job.name, curve, limit, **{**fields, **known})


DEFAULT_SAMPLES = 1.0


class Machine(Protocol):
    """What a simulation asks of the machine."""

    @property
    def cluster(self) -> Cluster:
        """The nodes and devices of the machine."""
        ...

    def arriving(self, job: TraceJob) -> JobState:
        """The job as policies see it when it arrives."""
        ...

    def pace(self, job: JobState, devices: tuple[int, ...]) -> float:
        """Samples/s that it trains on these devices; above 0."""
        ...

    def delay(self, job: JobState, devices: tuple[int, ...]) -> float:
        """Seconds from getting these devices to the first step on them."""
        ...


@runtime_checkable
class StagedMachine(Machine, Protocol):
    """A machine on which a job's pace changes as it gets on: it trains in stages, such as epochs."""

    def lasts(self, job: JobState) -> float:
        """Samples from `job.remaining` to the end of the job's stage; infinite in the last one."""
        ...

    def begun(self, job: JobState, devices: tuple[int, ...]) -> JobState:
        """The job as policies see it once it has these devices."""
        ...

    def advanced(self, job: JobState) -> JobState:
        """The job at the begin of its next stage."""
        ...


@dataclass(frozen=True)
class Adapting:
    """What a policy lets jobs do on a machine where they can.

    Attributes:
        tunes: they choose their batch sizes themselves; else each keeps its own.
        profiled: their step times are known before they start; else each learns them as it trains.
    """

    tunes: bool = False
    profiled: bool = True


@runtime_checkable
class AdaptingMachine(StagedMachine, Protocol):
    """A machine on which jobs choose batches as the policy lets them, and where some moves cost nothing."""

    def under(self, adapting: Adapting) -> AdaptingMachine:
        """Return the machine as it is under another policy."""
        ...

    def is_free(self, job: JobState, devices: tuple[int, ...]) -> bool:
        """Whether a job that trained until now goes on at once on these devices."""
        ...


class MachineOfCosts:
    """What machines have in common whose moves cost the same on all devices.

    Args:
        cluster: nodes and devices.
        costs: costs of moves; None: they cost nothing.
    """

    def __init__(self, cluster: Cluster, costs: Costs | None = None) -> None:
        self._cluster, self._costs = cluster, costs or Costs()

    @property
    def cluster(self) -> Cluster:
        """As `Machine.cluster`."""
        return self._cluster

    def delay(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.delay`."""
        return self._costs.delay(job)


class MeasuredMachine(MachineOfCosts):
    """A machine on which a job is as fast as was measured on so many devices, wherever these are.

    Args:
        cluster: nodes and devices.
        rates: the measured rates; None: a job trains for `duration` on `devices`, and in proportion on others.
        costs: costs of moves.
        guaranteed: priority from which a job is a guaranteed one; None: none is.
    """

    def __init__(
        self, cluster: Cluster, rates: Rates | None, costs: Costs | None = None, guaranteed: int | None = None
    ) -> None:
        super().__init__(cluster, costs)
        self._rates, self._guaranteed = rates, guaranteed
        self._curves: dict[tuple[object, ...], RateCurve] = {}

    def arriving(self, job: TraceJob) -> JobState:
        """As `Machine.arriving`."""
        curve = self._curve(job)
        limit = min(self._cluster.size, job.limit or job.workers or max(job.devices, curve.limit or job.devices))
        return arrived(job, curve, max(1, limit), self._samples(job), self._costs, self._guaranteed)

    def pace(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.pace`, with the batch that the job has now."""
        return job.rate(len(devices)) if job.scaling is None else job.scaling.rate(len(devices), job.batch)

    def _samples(self, job: TraceJob) -> float:
        if self._rates is None:
            return DEFAULT_SAMPLES * job.devices * _known(job, "duration")
        return job.samples if job.samples is not None else _known(job, "work") * (job.batch_size or 1)

    def _curve(self, job: TraceJob) -> RateCurve:
        if self._rates is None:
            return self._linear()
        key = (job.model, job.batch_size, job.workers, job.kind, job.name if not job.model else "")
        if key not in self._curves:
            most = min(self._cluster.size, job.limit or self._cluster.size)
            steps = self._rates.of(job, most).tolist()
            measured = {count: rate * (job.batch_size or 1) for count, rate in enumerate(steps, 1)}
            self._curves[key] = RateCurve(measured, max(self._cluster.devices_per_node), limit=most)
        return self._curves[key]

    def _linear(self) -> RateCurve:
        size = self._cluster.size
        if () not in self._curves:
            measured = {count: DEFAULT_SAMPLES * count for count in range(1, size + 1)}
            self._curves[()] = RateCurve(measured, max(self._cluster.devices_per_node), limit=size)
        return self._curves[()]


def _known(job: TraceJob, what: str) -> float:
    value = getattr(job, what)
    if value is None:
        raise ValueError(f"job {job.name}: the trace does not say its {what}, without which its length is not known")
    return float(value)
