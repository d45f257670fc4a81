"""Where a run stands, for people: what its events add up to.

The coordinator needs rates, policies and batches too, and has `fleet.coordination.live_state.LiveState`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any

from fleet.journal import events
from fleet.journal.metric_order import Comparing

FINISHED = ("done", "failed")


@dataclass
class SessionState:
    """One start of a run, from second `start` to second `end` of it.

    Attributes:
        told: what it was said to be; `cluster`: its machine, None: not known.
        prices: kind of device -> pairs of a second and the price of a device-hour from then on.
        ended: how it ended in good order; None: it has not.
    """

    index: int
    start: float
    end: float
    told: events.Session
    cluster: events.Cluster | None = None
    prices: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    ended: events.Ended | None = None


@dataclass
class JobState:
    """Where one job stands.

    Attributes:
        place: how many jobs were known before it.
        told: what it is.
        status: pending, running, stopped (it goes on later, or never where its search or a person stopped it), paused
            (its search has to decide), done or failed; `why` it ended, and the second `since` which it is so.
        devices: that it holds.
        epochs: finished ones; `metrics` and `rate` of the last.
        result: the metrics with which it ended; `checkpoint`: its last one, where it ended.
    """

    name: str
    place: int
    told: events.Job
    status: str = "pending"
    why: str = ""
    since: float = 0.0
    devices: tuple[int, ...] = ()
    epochs: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    rate: float | None = None
    result: Mapping[str, float] = field(default_factory=dict)
    checkpoint: str = ""


class RunState(events.Observer):
    """Where a run stands after the events that it has taken; nothing else changes it.

    What it holds does not grow with epochs. Who needs more of the past keeps that beside it.

    Attributes:
        seconds: of the run.
        jobs: by name, in the order in which they came.
        held: device -> the job that has it.
        round: the number of the last one; None: nothing was planned in this session.
        phase: starting, profiling, training, or how the session ended.
        late: jobs that were told to be late for a promised deadline.
        promise: what the last event means for a promise: late, tenable or kept; "": nothing.
    """

    def __init__(self, total: int = 0) -> None:
        self.seconds = 0.0
        self.sessions: list[SessionState] = []
        self.jobs: dict[str, JobState] = {}
        self.held: dict[int, str] = {}
        self.round: int | None = None
        self.phase = "starting"
        self.late: set[str] = set()
        self.promise = ""
        self.samples, self.energy, self.comparing = SampleCounts(), EnergyTotals(), Comparing()
        self._total = total
        self._having: defaultdict[str, dict[str, JobState]] = defaultdict(dict)  # status -> the jobs that have it

    # what it tells

    @property
    def session(self) -> SessionState:
        """The last one."""
        return self.sessions[-1]

    @property
    def total(self) -> int:
        """How many jobs the run has, as far as is known yet."""
        return max(self._total, len(self.jobs))

    @property
    def devices_now(self) -> int:
        """How many devices the session has."""
        cluster = self.session.cluster if self.sessions else None
        return 0 if cluster is None else cluster.size

    @property
    def is_over(self) -> bool:
        """Whether the session has ended in good order."""
        return bool(self.sessions) and self.session.ended is not None

    def count(self, *statuses: str) -> int:
        """Return how many jobs have one of `statuses`."""
        return sum(len(self._having[status]) for status in statuses)

    def having(self, status: str, most: int) -> list[JobState]:
        """Return the jobs of a status, as they came, at most so many."""
        return nsmallest(most, self._having[status].values(), key=lambda job: job.place)

    def job(self, name: str) -> JobState:
        """Return the job of this name, made known if it was not."""
        if name not in self.jobs:
            job = self.jobs[name] = JobState(name, len(self.jobs), events.Job(job=name))
            self._having[job.status][name] = job
        return self.jobs[name]

    # what happens

    def recall(self, results: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over how jobs stand after earlier sessions: their entries in run.json, by name."""
        for name, result in results.items():
            job = self.job(name)
            self._become(job, str(result["status"]))
            job.epochs = int(result["epochs"])
            job.metrics.update(result["metrics"] or {})

    def take(self, event: events.Event) -> None:
        """Take one event."""
        if isinstance(event, events.Session):
            self._open_session(event)
        elif not self.sessions:
            self._open_session(events.Session(t=event.t))
        self.seconds = self.session.end = max(self.seconds, event.t)
        self.promise = ""
        self.comparing.take(event)
        super().take(event)

    def _open_session(self, event: events.Session) -> None:
        self._stop_running()
        start = max(self.seconds, event.t)
        self.sessions.append(SessionState(len(self.sessions), start, start, event))

    def on_cluster(self, event: events.Cluster) -> None:
        self.session.cluster = event

    def on_prices(self, event: events.PricesTold) -> None:
        self.session.prices = event.courses

    def on_job(self, event: events.Job) -> None:
        self.job(event.job).told = event

    def on_profile(self, event: events.Profile) -> None:
        self.job(event.job)
        self.phase = "profiling"

    def on_planned(self, event: events.Planned) -> None:
        self.round, self.phase = event.round or 0, "training"

    def on_started(self, event: events.Started) -> None:
        job = self.job(event.job)
        self._become(job, "running")
        self.phase = "training"
        job.devices, job.epochs = event.devices, event.epoch
        self.held.update(dict.fromkeys(event.devices, job.name))

    def on_epoch(self, event: events.Epoch) -> None:
        job = self.job(event.job)
        job.epochs += 1
        job.metrics.update(event.metrics)
        job.rate = event.rate

    def on_stopped(self, event: events.Stopped | events.Paused) -> None:
        self._become(self.job(event.job), event.event, event.why)

    on_paused = on_stopped

    def on_pruned(self, event: events.Pruned) -> None:
        self._become(self.job(event.job), "stopped", "pruned")

    def on_halted(self, event: events.Halted) -> None:
        self._become(self.job(event.job), "stopped", "asked")

    def on_taken_up(self, event: events.TakenUp) -> None:
        self._become(self.job(event.job), "pending")

    def on_withdrawn(self, event: events.Withdrawn) -> None:
        job = self.job(event.job)
        self._become(job, "stopped")
        job.epochs, job.metrics, job.result = event.epoch, dict(event.metrics), event.metrics

    def on_done(self, event: events.Done) -> None:
        job = self.job(event.job)
        self._become(job, "done", event.why)
        job.metrics.update(event.metrics)
        job.result, job.checkpoint = event.metrics, event.checkpoint or ""
        if job.name in self.late:
            self.late.discard(job.name)
            self.promise = "kept" if event.deadline is not None and event.t <= event.deadline else ""

    def on_failed(self, event: events.Failed) -> None:
        self._become(self.job(event.job), "failed", event.error)

    def on_late(self, event: events.Late) -> None:
        self.late.add(event.job)
        self.promise = "late"

    def on_admitted(self, event: events.Admitted) -> None:
        if event.job in self.late:
            self.late.discard(event.job)
            self.promise = "tenable"

    def on_samples(self, event: events.Samples) -> None:
        self.samples = self.samples.plus(event.read, event.laid, event.made)

    def on_energy(self, event: events.Energy) -> None:
        self.energy = self.energy.plus(event)

    def on_ended(self, event: events.Ended) -> None:
        self.session.ended, self.phase = event, event.status
        self.session.end = max(self.seconds, event.wall_seconds or 0.0)
        self._stop_running()

    def _stop_running(self) -> None:
        for job in list(self._having["running"].values()):
            self._become(job, "stopped")

    def _become(self, job: JobState, status: str, why: str = "") -> None:
        """Give a job a status; it holds no device then."""
        for device in job.devices:
            if self.held.get(device) == job.name:
                del self.held[device]
        del self._having[job.status][job.name]
        self._having[status][job.name] = job
        job.status, job.why, job.since = status, why, self.seconds
        job.devices, job.result, job.checkpoint = (), {}, ""
        job.rate = job.rate if status == "running" else None


@dataclass(frozen=True)
class EnergyTotals:
    """Joules that a run has used.

    Attributes:
        jobs: by job, while its groups held devices.
        idle: of the hosts while no group held these devices.
        sources: what told it: rapl, hwmon, nvml; none: nothing was ever read.
    """

    jobs: Mapping[str, float] = field(default_factory=dict)
    idle: float = 0.0
    sources: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.sources)

    def plus(self, event: events.Energy) -> EnergyTotals:
        """Add what an event tells."""
        jobs = dict(self.jobs)
        for job, joules in event.jobs.items():
            jobs[job] = jobs.get(job, 0.0) + joules
        return EnergyTotals(jobs, self.idle + event.idle, self.sources | set(event.sources))

    @property
    def used(self) -> float:
        """The energy of all jobs together."""
        return sum(self.jobs.values())

    def to_json(self) -> dict[str, Any]:
        """Return the totals as run.json holds them."""
        return {"jobs": dict(self.jobs), "used": self.used, "idle": self.idle, "sources": sorted(self.sources)}


@dataclass(frozen=True)
class SampleCounts:
    """Samples by data set.

    Attributes:
        read: handed to networks; what two networks read counts twice.
        laid: laid into lanes, whoever reads them.
        made: read from the data and prepared for that; the others were kept from before.
    """

    read: Mapping[str, int] = field(default_factory=dict)
    laid: Mapping[str, int] = field(default_factory=dict)
    made: Mapping[str, int] = field(default_factory=dict)

    def plus(self, read: Mapping[str, int], laid: Mapping[str, int], made: Mapping[str, int]) -> SampleCounts:
        """Add further samples."""
        return SampleCounts(_sum(self.read, read), _sum(self.laid, laid), _sum(self.made, made))

    @property
    def per_read(self) -> float | None:
        """Samples made for each one read; None where none was laid or none read."""
        read = sum(self.read.values())
        return sum(self.made.values()) / read if read and any(self.laid.values()) else None

    def to_json(self) -> dict[str, Any]:
        """Return what run.json says of them: all together, and by data set."""
        kinds = {"read": self.read, "laid": self.laid, "made": self.made}
        names = sorted({name for counts in kinds.values() for name in counts})
        of_data = {name: {kind: counts.get(name, 0) for kind, counts in kinds.items()} for name in names}
        return {**{kind: sum(counts.values()) for kind, counts in kinds.items()}, "of_data": of_data}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    total = Counter(one)
    total.update(other)
    return dict(sorted(total.items()))
