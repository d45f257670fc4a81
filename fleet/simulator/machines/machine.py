"""The machine that a simulation plays: what it makes of a trace's jobs, how fast it trains them, what a move costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.arrivals import Costs, arrived
from fleet.simulator.rates.rates import Rates
from fleet.simulator.traces.job import TraceJob

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
