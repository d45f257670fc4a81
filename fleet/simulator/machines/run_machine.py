"""The machine of a run that has not begun, and its jobs: they train at the rates that it would start with."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from fleet.scheduling.easyscale.kind_curves import KindCurves, layout_of, pace_in
from fleet.scheduling.model.batch_scaling import BatchScaling
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.machine import Costs, MeasuredMachine, RunRates
from fleet.simulator.traces.trace import JobColumns, Trace, TraceJob
from fleet.spec import Job
from fleet.spec.values import unix_seconds

FORMAT = "spec"


@dataclass(frozen=True)
class KnownJob:
    """A job of a spec, and what its data and its profile tell.

    Attributes:
        samples: samples of an epoch.
        data: the key of its data set.
        curve: its rate curve, samples/s.
        mixed_kinds: whether its devices may be of different kinds.
    """

    job: Job
    samples: int
    data: str
    curve: RateCurve
    mixed_kinds: bool = False


def spec_trace(known: Mapping[str, KnownJob], start: float) -> Trace:
    """The jobs by arrival. Their times count from the begin of the run, whenever the first of them arrives.

    Args:
        known: by name.
        start: when the run begins, seconds since 1970: deadlines may be times of day.
    """
    columns = JobColumns.from_jobs(_trace_job(job, start) for job in known.values())
    ordered = columns.take(np.argsort(columns.arrival, kind="stable"))
    return Trace(ordered, format=FORMAT, curves={name: one.curve for name, one in known.items()})


def _trace_job(known: KnownJob, start: float) -> TraceJob:
    job, level = known.job, known.job.service_level
    return TraceJob(
        job.name,
        job.arrival,
        job.virtual_workers,
        model=job.name,
        batch_size=job.global_batch,
        samples=float(job.stop.epochs * known.samples),
        limit=job.virtual_workers,
        minimum_devices=job.minimum_devices,
        workers=job.virtual_workers,
        epochs=float(job.stop.epochs),
        deadline=_due(job, start),
        priority=job.priority,
        mixed=known.mixed_kinds,
        soft=job.soft,
        tenant=job.user or "",
        service_devices=None if level is None else level.devices,
        service_window=None if level is None else level.window,
        stream=f"{known.data}/{job.order_seed}",
    )


def _due(job: Job, start: float) -> float | None:
    """Seconds after the run's begin; a deadline before its job's arrival is as good as one at it."""
    if isinstance(job.deadline, str):
        return max(job.arrival, unix_seconds(job.deadline) - start)
    return None if job.deadline is None else job.arrival + job.deadline


_ROUNDING = 1e-6


@dataclass(frozen=True)
class SpecRates:
    """What a spec and its profile tell of how fast its jobs train.

    Attributes:
        curves: job -> samples/s by devices, with its own batch.
        scalings: job -> its rates by batch, for jobs whose batch the policy chooses when they first start.
        guaranteed: jobs that take devices from others at once.
        by_kind: job -> its rates on each kind of device, where there are several.
        changing: jobs whose batch the policy may change at the end of each epoch.
        executors: job -> samples/s of 1, 2, ... of its trainers on one accelerator.
    """

    curves: Mapping[str, RateCurve]
    scalings: Mapping[str, BatchScaling] = field(default_factory=dict)
    guaranteed: Collection[str] = ()
    by_kind: Mapping[str, KindCurves] = field(default_factory=dict)
    changing: Collection[str] = ()
    executors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


class RunMachine(MeasuredMachine):
    """A `StagedMachine` in which a job's batch stays once it has started, or changes at epochs' ends, as in a run.

    A job has one stage, and another one from the end of an epoch at which its batch changes.

    Args:
        cluster: nodes and devices.
        rates: rates of the jobs.
        costs: costs of moves.
    """

    def __init__(self, cluster: Cluster, rates: SpecRates, costs: Costs) -> None:
        super().__init__(cluster, RunRates(rates.curves), costs)
        self._of_spec = rates
        self._by_batch: dict[tuple[str, int], RateCurve] = {}  # by job and batch

    def arriving(self, job: TraceJob) -> JobState:
        """As `Machine.arriving`."""
        state = (
            super()
            .arriving(job)
            .changed(
                guaranteed=job.name in self._of_spec.guaranteed,
                executor_rates=self._of_spec.executors.get(job.name, ()),
            )
        )
        scaling = self._of_spec.scalings.get(job.name)
        if scaling is None:
            return state.changed(scaling=self._of_spec.by_kind.get(job.name))
        return state.changed(scaling=scaling, batches=scaling.range.ends)

    def pace(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.pace`; virtual workers are dealt over unlike devices by their speeds."""
        by_kind = self._of_spec.by_kind.get(job.name)
        layout = layout_of(devices, self._cluster) if job.executor_rates else ()
        if layout:
            return pace_in(layout, job.executor_rates, job.rate, job.limit)
        if by_kind is None:
            changes = job.name in self._of_spec.changing
            return self._as_begun(job).rate(len(devices)) if changes else super().pace(job, devices)
        return by_kind.pace(tuple(map(self._cluster.kind_of, devices)))

    def lasts(self, job: JobState) -> float:
        """As `StagedMachine.lasts`: until the end of the epoch, if another batch is wanted than the job has."""
        return self._left_in_epoch(job) if self._wants_change(job) else math.inf

    def begun(self, job: JobState, devices: tuple[int, ...]) -> JobState:
        """As `StagedMachine.begun`: its batch is fixed, and so is its kind of device if its bits hold for one alone."""
        scaling, by_kind = self._of_spec.scalings.get(job.name), self._of_spec.by_kind.get(job.name)
        if by_kind is not None and not job.mixed_kinds:
            there = by_kind.at_home_on(self._cluster.kind_of(devices[0]))
            job = job.changed(kind=there.home, rate=there.curve, scaling=there)
        if scaling is None or job.scaling is None or job.batch is None:
            return job
        if job.name in self._of_spec.changing:
            return self._as_begun(job)
        batch = scaling.range.nearest(job.batch)
        return job.changed(rate=scaling.curve_of(batch), batch=batch, scaling=None, batches=None)

    def advanced(self, job: JobState) -> JobState:
        """As `StagedMachine.advanced`: the job has the batch that is wanted."""
        return job.changed(rate=self._curve_with(job))

    def _as_begun(self, job: JobState) -> JobState:
        """A job with the batch that it begins with: the one that is wanted, unless it is inside an epoch."""
        is_between = self._left_in_epoch(job) >= (1 - _ROUNDING) * job.epoch
        return self.advanced(job) if is_between and self._wants_change(job) else job

    def _wants_change(self, job: JobState) -> bool:
        return job.name in self._of_spec.changing and job.rate is not self._curve_with(job)

    def _left_in_epoch(self, job: JobState) -> float:
        """Samples from where the job stands to the end of its epoch."""
        done = job.trained % job.epoch
        return job.epoch - (0.0 if done > (1 - _ROUNDING) * job.epoch else done)

    def _curve_with(self, job: JobState) -> RateCurve:
        """The rates of a job with the batch that is wanted."""
        scaling = self._of_spec.scalings[job.name]
        batch = scaling.range.nearest(job.batch or scaling.own)
        if (job.name, batch) not in self._by_batch:
            own = batch == scaling.own
            self._by_batch[job.name, batch] = self._of_spec.curves[job.name] if own else scaling.curve_of(batch)
        return self._by_batch[job.name, batch]

    def _curve(self, job: TraceJob) -> RateCurve:
        return self._of_spec.curves[job.name]
