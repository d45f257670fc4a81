"""The run's books: where each job stands, who holds which device, and the rounds so far."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fleet.coordination.checkpointed import Standing
from fleet.coordination.executor import GroupEnded
from fleet.coordination.protocol import CheckpointWritten, EpochEnded, Progress
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.model.state import Cluster, JobState, State
from fleet.scheduling.variable_batch.batch_scaling import BatchRange, BatchScaling

Status = Literal["pending", "running", "done", "failed"]


@dataclass
class JobRecord:
    """One job's line in the books."""

    name: str
    stream: str  # data set and seed: with the place, what decides who can share
    limit: int  # most devices it can use: its virtual workers
    status: Status = "pending"
    curve: RateCurve | None = None
    epoch: int = 0  # finished ones
    step: int = 0  # inside the epoch
    metrics: dict[str, float] = field(default_factory=dict)
    checkpoint: str | None = None
    error: str | None = None
    mixed_kinds: bool = False  # whether its devices may be of different kinds
    arrival: float = 0.0  # seconds of the run
    deadline: float = math.inf  # seconds of the run
    priority: float = 0.0
    guaranteed: bool = False  # takes devices from those that are not, at once
    batch: int | None = None  # samples of a step
    batches: BatchRange | None = None  # of which a policy may choose, until the job first starts
    alone: dict[int, float] = field(default_factory=dict)  # batch -> samples/s on one device, beside the own
    samples: float = math.inf  # that it trains until its last epoch ends; infinite: not known
    epoch_samples: float = 0.0
    losses: tuple[float, ...] = ()  # of the epochs so far
    admitted: bool = False
    attained: float = 0.0  # device-seconds until `since`
    pardoned: float = 0.0  # of these, what no longer counts against it
    since: float = 0.0  # when it got or left its devices, seconds of the run
    reported: float = 0.0  # when epoch and step were last known, seconds of the run
    starts: int = 0
    last: tuple[int, ...] = ()  # the devices that it left last
    ranks_cost: int = 0  # times since its last checkpoint that ranks were lost which trained it

    @property
    def waits(self) -> bool:
        """Whether it could go on, or still runs and will then."""
        return self.status in ("pending", "running")

    @property
    def remaining(self) -> float:
        """Samples left, those of the epoch that is under way counted by its steps."""
        return max(0.0, self.samples - self.trained)

    @property
    def trained(self) -> float:
        """Samples that it has trained, those of the epoch that is under way counted by its steps."""
        return self.epoch * self.epoch_samples + self.step * (self.batch or 0)

    @property
    def scaling(self) -> BatchScaling | None:
        """Its rates by batch, as long as that can be chosen."""
        if self.batches is None or self.curve is None or self.batch is None:
            return None
        return BatchScaling(self.curve, self.batch, self.batches, self.alone)

    @property
    def sharing_class(self) -> str:
        """Jobs with the same class read the same samples next."""
        return f"{self.stream}/{self.epoch}"

    def result(self) -> dict[str, Any]:
        """The job's entry in run.json."""
        status = "pending" if self.status == "running" else self.status
        return {
            "status": status,
            "epochs": self.epoch,
            "metrics": self.metrics,
            "checkpoint": self.checkpoint,
            "error": self.error,
        }


@dataclass
class Round:
    """The time between two allocations."""

    index: int
    allocation: dict[str, tuple[int, ...]]
    start: float
    end: float | None = None


class Ledger:
    """Mutable, but only by what happened: each method is named after an event.

    Args:
        cluster: its nodes and devices.
        jobs: all of them.
        seed: root of the policy's random draws.
        restart: seconds that a job loses when it gets devices, as long as nothing longer was measured.
        margin: seconds that promised deadlines leave for delays.
    """

    def __init__(
        self, cluster: Cluster, jobs: Iterable[JobRecord], seed: int, restart: float = 0.0, margin: float = 0.0
    ) -> None:
        self.cluster = cluster
        self.jobs = {job.name: job for job in jobs}
        self.running: dict[str, tuple[int, ...]] = {}
        self.rounds: list[Round] = []
        self.overhead = {"profiling": 0.0, "scheduling": 0.0, "checkpoint": 0.0, "reforming": 0.0}
        self.sessions = 0  # earlier ones
        self._seed = seed
        self.promises: dict[str, Any] = {}  # the policy's, by job
        self.longest_forming = restart  # seconds
        self._margin = margin
        self.checkpoint_seconds: dict[str, float] = {}  # longest of each job
        self._deaf: dict[str, float] = {}  # of each job's last epoch: longest time in which it heard of no wish
        self._to_come = list(self.jobs.values())
        self.lost: frozenset[int] = frozenset()  # devices whose ranks are gone

    def remember(self, event: Mapping[str, Any]) -> None:
        """Take in what an earlier session wrote down. A job that failed is tried again: its fault may be mended."""
        kind, job = event["event"], self.jobs.get(event.get("job", ""))
        if kind == "session":
            self.sessions += 1
        elif kind == "planned":
            self.planned({name: tuple(devices) for name, devices in event["allocation"].items()}, event["t"])
        elif kind in ("round_end", "ended"):
            self.close_round(event["t"])
        elif kind == "epoch" and job is not None:
            job.epoch, job.metrics = event["epoch"], event["metrics"]
            self._deaf[job.name] = event.get("deaf", 0.0)
        elif kind == "checkpoint" and job is not None:
            job.checkpoint = event["path"]
            self._took(job.name, event.get("seconds", 0.0))
        elif kind == "formed":
            self.formed(event["seconds"])
        elif kind == "profile":
            self.formed(event.get("forming", 0.0))
        elif kind == "batch" and job is not None:
            job.batch, job.batches = event["batch"], None
        elif kind == "admitted" and job is not None:
            job.admitted = True
        elif kind == "done" and job is not None:
            job.status, job.epoch = "done", event["epoch"]
        if kind == "ended":
            for name, seconds in event["overhead_seconds"].items():
                self.overhead[name] = seconds

    @property
    def unfinished(self) -> list[JobRecord]:
        return [job for job in self.jobs.values() if job.status in ("pending", "running")]

    @property
    def status(self) -> str:
        """What run.json says of the run as a whole, were it to end now."""
        if self.unfinished:
            return "stopped"
        return "failed" if any(job.status == "failed" for job in self.jobs.values()) else "done"

    def add(self, job: JobRecord) -> None:
        """The run has one job more."""
        self.jobs[job.name] = job
        self._to_come.append(job)

    def arrived(self, now: float) -> list[str]:
        """Jobs that have come since this was last asked."""
        new = [job.name for job in self._to_come if job.arrival <= now]
        if new:
            self._to_come = [job for job in self._to_come if job.arrival > now]
        return new

    @property
    def next_arrival(self) -> float:
        """When the next job comes, seconds of the run; infinite if none does."""
        return min((job.arrival for job in self._to_come if job.waits), default=math.inf)

    def state(self, now: float, changed: tuple[str, ...] = (), memo: Any = None) -> State:
        """The books as a policy sees them."""
        known = [job for job in self.unfinished if job.curve is not None and job.arrival <= now]
        jobs = tuple(self._seen(job, now) for job in known)
        formed = self.rounds[-1].allocation if self.rounds else {}
        return State.of(
            self.cluster,
            jobs,
            dict(self.running),
            dict(formed),
            self.lost,
            seed=self._seed,
            time=now,
            changed=changed,
            memo=memo,
            promises=self.promises,
            margin=self._margin,
        )

    def _seen(self, job: JobRecord, now: float) -> JobState:
        """A job as policies see it. While it runs it has a step to do at least, however late it is."""
        held = len(self.running.get(job.name, ()))
        assert job.curve is not None
        pace = float(job.curve(held)) if held else 0.0
        since_then = min(pace * max(0.0, now - job.reported), max(0.0, job.remaining - (job.batch or 0)))
        return JobState(
            job.name, job.curve, job.limit, job.epoch, job.sharing_class, job.mixed_kinds, job.arrival, job.deadline,
            gang=job.limit, priority=job.priority, guaranteed=job.guaranteed,
            batch=job.batch, batches=None if job.batches is None else job.batches.ends, scaling=job.scaling,
            losses=job.losses, admitted=job.admitted,
            remaining=job.remaining - since_then, trained=job.trained + since_then, epoch=job.epoch_samples,
            attained=job.attained, pardoned=job.pardoned, since=job.since, ready=max(job.reported, now),
            pace=pace, held=held,
            restarts=max(0, job.starts - 1), last=job.last, restart=self.longest_forming,
        )  # fmt: skip

    def planned(self, allocation: Mapping[str, tuple[int, ...]], now: float) -> Round:
        """A new allocation begins a new round."""
        self.close_round(now)
        self.rounds.append(Round(len(self.rounds), dict(allocation), now))
        return self.rounds[-1]

    def close_round(self, now: float) -> None:
        if self.rounds and self.rounds[-1].end is None:
            self.rounds[-1].end = now

    def started(self, job: str, devices: tuple[int, ...], now: float) -> None:
        self.running[job] = devices
        record = self.jobs[job]
        record.status, record.since, record.reported = "running", now, now
        record.starts += 1

    def rated(self, job: str, curve: RateCurve) -> None:
        """A job's rates are known, so that policies see it."""
        self.jobs[job].curve = curve

    def rated_with(self, job: str, batch: int, rate: float) -> None:
        """So many samples/s a job trains on one device in steps of `batch` samples, other than its own."""
        self.jobs[job].alone[batch] = rate

    def range_cut(self, job: str, least: int, most: int) -> None:
        """A job's batch can be chosen between these alone."""
        record = self.jobs[job]
        if record.batches is not None:
            record.batches = record.batches.within(least, most)

    def failed_to_measure(self, job: str, error: str) -> None:
        """A job's code raised while its rates were measured."""
        self.jobs[job].status, self.jobs[job].error = "failed", error

    def stands_at(self, job: str, found: Standing) -> None:
        """A job goes on from where its checkpoints say, whatever the journal had time to say."""
        record = self.jobs[job]
        record.epoch, record.step = found.epoch, found.step
        if found.epoch or found.step:
            record.batches = None
        if found.ended:
            record.metrics, record.checkpoint = dict(found.metrics), found.path

    def admitted(self, job: str) -> None:
        """A job's deadline is promised."""
        self.jobs[job].admitted = True

    def promised(self, promises: Mapping[str, Any]) -> None:
        """The policy wants to see these again, by job."""
        self.promises.update(promises)

    def charged(self, kind: str, seconds: float) -> None:
        """The run spent so many seconds on what is not training."""
        self.overhead[kind] += seconds

    def batch_fixed(self, job: str, batch: int) -> None:
        """A job that is about to start for the first time has this batch for good."""
        record = self.jobs[job]
        if record.scaling is not None and batch != record.batch:
            record.curve = record.scaling.curve_of(batch)
        record.batch, record.batches = batch, None

    def formed(self, seconds: float) -> None:
        """A group was formed, and its job's state brought there, in so many seconds."""
        self.longest_forming = max(self.longest_forming, seconds)

    def saved(self, event: CheckpointWritten) -> None:
        """A job's checkpoint was written."""
        job = self.jobs[event.job]
        job.checkpoint, job.ranks_cost = event.path, 0
        self._took(job.name, event.seconds)

    def found_done(self, name: str, metrics: Mapping[str, float], checkpoint: str | None) -> None:
        """A job's last checkpoint says that it is done, though nobody said so."""
        job = self.jobs[name]
        job.status, job.metrics, job.checkpoint = "done", dict(metrics), checkpoint

    def devices_lost(self, devices: Iterable[int]) -> None:
        """Nobody can be given them any more."""
        self.lost |= frozenset(devices)

    def set_back(self, name: str, epoch: int, step: int, now: float) -> None:
        """What a job did since its last checkpoint is lost; it waits to go on from there."""
        job = self.jobs[name]
        job.losses = job.losses[: len(job.losses) - (job.epoch - epoch)]
        job.epoch, job.step, job.reported = epoch, step, now

    def cost_ranks(self, event: GroupEnded) -> bool:
        """Whether ranks of the group itself are gone; it may have ended for want of samples, too."""
        return event.why == "lost" and not self.lost.isdisjoint(event.devices)

    def _took(self, job: str, seconds: float) -> None:
        self.checkpoint_seconds[job] = max(self.checkpoint_seconds.get(job, 0.0), seconds)

    def seconds_to_stop(self) -> float:
        """From a wish to stop until all running jobs are saved.

        Until the last of them hears of it, after a step or an evaluation, and their checkpoints one by one.
        """
        longest = max(self.checkpoint_seconds.values(), default=0.0)
        deafest = max(self._deaf.values(), default=0.0)
        steps = [0.0, *(self._deaf.get(name, deafest) for name in self.running)]
        for name, devices in self.running.items():
            job = self.jobs[name]
            if job.curve is not None and job.batch:
                steps.append(job.batch / float(job.curve(len(devices))))
        return max(steps) + sum(self.checkpoint_seconds.get(name, longest) for name in self.running)

    def progressed(self, event: Progress, now: float) -> None:
        """A running job has come to a step of its epoch."""
        job = self.jobs[event.job]
        if event.epoch == job.epoch and event.job in self.running:
            job.step, job.reported = event.step, now

    def epoch_ended(self, event: EpochEnded, now: float) -> None:
        """A running job has finished an epoch."""
        job = self.jobs[event.job]
        job.epoch, job.step, job.metrics, job.reported = event.epoch, 0, dict(event.metrics), now
        self._deaf[job.name] = event.deaf
        if "loss" in event.metrics:
            job.losses = (*job.losses, event.metrics["loss"])
        if job.curve is not None and event.rate > 0:
            job.curve = job.curve.observe(len(self.running[event.job]), event.rate)

    def pardoned(self, job: str, now: float) -> None:
        """Its service until now no longer counts against it."""
        record = self.jobs[job]
        record.pardoned = record.attained + len(self.running.get(job, ())) * (now - record.since)

    def dropped(self, job: str, why: str) -> None:
        """The policy will never run it."""
        self.jobs[job].status, self.jobs[job].error = "failed", why

    def ended(self, event: GroupEnded, now: float) -> None:
        job = self.jobs[event.job]
        job.last = self.running.pop(event.job)
        job.attained += len(job.last) * (now - job.since)
        job.since = job.reported = now
        job.status = "pending" if event.why in ("stopped", "lost") else "failed" if event.why == "failed" else "done"
        if job.status != "pending":
            self.promises.pop(event.job, None)
        if event.why == "failed":
            job.error = event.traceback or event.error
        elif event.why == "lost":
            job.ranks_cost += self.cost_ranks(event)
            self.set_back(event.job, event.epoch, event.step, now)
        else:
            job.epoch, job.step = event.epoch, event.step

    def run_json(self, status: str, policy: str, wall: float, **more: Any) -> dict[str, Any]:
        """The content of run.json."""
        rounds = [
            {
                "allocation": {j: list(d) for j, d in r.allocation.items()},
                "start": r.start,
                "end": wall if r.end is None else r.end,
            }
            for r in self.rounds
        ]
        jobs = {job.name: job.result() for job in self.jobs.values()}
        return {
            "status": status,
            "policy": policy,
            "wall_seconds": wall,
            "overhead_seconds": dict(self.overhead),
            "rounds": rounds,
            "jobs": jobs,
            **more,
        }
