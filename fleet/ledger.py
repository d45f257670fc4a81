"""The run's books: where each job stands, who holds which device, and the rounds so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fleet.executor import GroupEnded
from fleet.scheduling.rates import RateCurve
from fleet.scheduling.state import Cluster, JobState, State

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
    """Mutable, but only by what happened: each method is named after an event."""

    def __init__(self, cluster: Cluster, jobs: Iterable[JobRecord], seed: int) -> None:
        self.cluster = cluster
        self.jobs = {job.name: job for job in jobs}
        self.running: dict[str, tuple[int, ...]] = {}
        self.rounds: list[Round] = []
        self.overhead = {"profiling": 0.0, "scheduling": 0.0, "checkpoint": 0.0, "reforming": 0.0}
        self.sessions = 0  # earlier ones
        self._seed = seed

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
        elif kind == "checkpoint" and job is not None:
            job.checkpoint = event["path"]
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

    def state(self, now: float) -> State:
        """The books as a policy sees them."""
        jobs = tuple(
            JobState(
                name=job.name,
                rate=job.curve,
                limit=job.limit,
                epochs=job.epoch,
                stream=job.sharing_class,
                mixed_kinds=job.mixed_kinds,
            )
            for job in self.unfinished
            if job.curve is not None
        )
        formed = self.rounds[-1].allocation if self.rounds else {}
        return State.of(self.cluster, jobs, dict(self.running), dict(formed), seed=self._seed, time=now)

    def planned(self, allocation: Mapping[str, tuple[int, ...]], now: float) -> Round:
        """A new allocation begins a new round."""
        self.close_round(now)
        self.rounds.append(Round(len(self.rounds), dict(allocation), now))
        return self.rounds[-1]

    def close_round(self, now: float) -> None:
        if self.rounds and self.rounds[-1].end is None:
            self.rounds[-1].end = now

    def started(self, job: str, devices: tuple[int, ...]) -> None:
        self.running[job] = devices
        self.jobs[job].status = "running"

    def ended(self, event: GroupEnded) -> None:
        self.running.pop(event.job)
        job = self.jobs[event.job]
        job.status = "pending" if event.why == "stopped" else event.why
        if event.why == "failed":
            job.error = event.traceback or event.error
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
