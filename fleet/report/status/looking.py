"""Looks at a run directory: what its journal and its lock say of how the run stands now."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleet.journal import events
from fleet.report.status.estimates import JobFacts, pace_of, run_seconds_left, seconds_left, told_in, work_left
from fleet.report.status.scan import JournalScan, ScannedJob
from fleet.report.status.searching import search_standing
from fleet.report.status.snapshot import read_snapshot
from fleet.report.status.standing import OtherJob, RunningJob, RunStanding, Writer
from fleet.report.status.writer import writer_of

JOURNAL = "journal.jsonl"
COUNTED = ("running", "waiting", "stopped", "paused", "pruned", "done", "failed")
_GOES_ON = ("starting", "measuring", "training", "stopping")


@dataclass
class Look:
    """A run directory that is looked at, once or again and again; nothing there is changed.

    Args:
        directory: of the run, or a copy of it.
        clock: seconds since 1970.
    """

    directory: Path
    clock: Callable[[], float] = time.time
    _scan: JournalScan = field(default_factory=JournalScan)

    def standing(self, whole: bool = False) -> RunStanding | None:
        """How the run stands; None: the directory holds none.

        Args:
            whole: jobs that do not train are told one by one, too.
        """
        journal = self.directory / JOURNAL
        if not self._scan.offset:
            self._scan = read_snapshot(journal) or self._scan
        try:
            self._scan.read(journal)
        except (FileNotFoundError, NotADirectoryError):
            if writer_of(self.directory, self.clock)[0].lives is not True:
                return None
        writer, begun = writer_of(self.directory, self.clock)
        return _Reckoning(self._scan, self.directory, writer, begun, self.clock()).standing(whole)


@dataclass
class _Reckoning:
    """What a scan adds up to at a moment; `begun`: since when its writer lives; `unix`: now."""

    scan: JournalScan
    directory: Path
    writer: Writer
    begun: float
    unix: float

    def __post_init__(self) -> None:
        self.age = max(0.0, self.unix - self.scan.unix) if self.scan.unix else None
        self.state = self._state()
        goes_on = self.writer.lives is True and self.scan.ended is None
        self.now = self.scan.now + (self.age or 0.0 if goes_on else 0.0)
        self.planned = self._planned()
        cluster = self.scan.cluster
        self.hosts = {} if cluster is None else {rank.device: rank.host for rank in cluster.ranks}

    def standing(self, whole: bool) -> RunStanding:
        scan, jobs = self.scan, self.scan.jobs.values()
        statuses = Counter(map(self._status, jobs))
        running = tuple(self._running(JobFacts.of(job)) for job in jobs if self._status(job) == "running")
        facts = [JobFacts.of(job) for job in jobs if self._status(job) == "waiting"]
        work = [work_left(each) for each in facts]
        size = scan.size
        left, unrated = run_seconds_left([(job.seconds, len(job.devices)) for job in running], work, size)
        session, allocation = scan.session or events.Session(), scan.allocation or events.Allocation()
        held = sum(scan.seconds_of(job, self.now) for job in jobs)
        busy = len({device for job in running for device in job.devices})
        return RunStanding(
            directory=str(self.directory), name=session.name, state=self.state,
            policy=session.policy, sessions=scan.sessions,
            counts={status: statuses[status] for status in COUNTED}, waits=Counter(map(self._wait, facts)),
            running=running, devices=size, busy=busy, device_seconds=held,
            reserved=scan.reserved + size * max(0.0, self.now - scan.begin), seconds=self.now,
            left=left if statuses["waiting"] or running else 0.0, unrated=unrated, last_event=scan.last, age=self.age,
            writer=self.writer, scheduler=f"{allocation.scheduler} {allocation.id}".strip(),
            allocation_left=self._allocation_left(),
            warnings=scan.warnings, damaged=scan.damaged, measuring=scan.measuring,
            searches=any(job.search for job in jobs) and self.state != "done", search=search_standing(scan),
            joules=scan.energy.used if scan.energy else None, idle_joules=scan.energy.idle if scan.energy else None,
            others=tuple(self._others()) if whole else (),
        )  # fmt: skip

    def _status(self, job: ScannedJob) -> str:
        """As people count: a job of a run that was killed trains no more."""
        waits = job.status in ("pending", "stopped") or (job.status == "running" and self.state == "killed")
        return "waiting" if waits else {"halted": "stopped"}.get(job.status, job.status)

    def _state(self) -> str:
        scan, lives = self.scan, self.writer.lives
        if scan.session is None:
            return "starting" if lives else "killed"
        if scan.ended is not None:
            starts_again = lives is True and self.begun > scan.unix
            return "starting" if starts_again else scan.ended.status
        if lives is None:
            return "silent"
        if not lives:
            return "killed"
        if scan.stopping:
            return "stopping"
        return "training" if scan.plan else "measuring"

    def _planned(self) -> Mapping[str, float]:
        plan = told_in(self.scan.plan)
        return plan.paces if isinstance(plan, events.Planned) else {}

    def _allocation_left(self) -> float | None:
        allocation = self.scan.allocation
        if self.state not in _GOES_ON or allocation is None or allocation.left is None or not allocation.unix:
            return None
        return max(0.0, allocation.left - (self.unix - allocation.unix))

    def _running(self, facts: JobFacts) -> RunningJob:
        job = facts.job
        rate, source = pace_of(facts, self.planned)
        hosts = dict.fromkeys(self.hosts.get(device, "") for device in job.devices)
        return RunningJob(
            job.name, job.devices, tuple(host for host in hosts if host), facts.epochs, facts.most_epochs,
            facts.metrics, rate, seconds_left(facts, rate, self.now), source,
            self.scan.seconds_of(job, self.now), self._joules(job),
        )  # fmt: skip

    def _joules(self, job: ScannedJob) -> float | None:
        energy = self.scan.energy
        return energy.jobs.get(job.name, 0.0) if energy else None

    def _wait(self, facts: JobFacts) -> str:
        """What a waiting job waits for."""
        arrival, job = (facts.spec.arrival or 0.0) if facts.spec is not None else 0.0, facts.job
        if self.state not in ("starting", "measuring", "training"):
            return "the run's next start"
        if arrival > self.now:
            return "its arrival"
        if not job.rates:
            return "its rates, which nobody has measured yet"
        if self.state == "training" and getattr(facts.word, "why", "") == "lost":
            return "devices, to go on from its last checkpoint"
        return "devices"

    def _others(self) -> Iterator[OtherJob]:
        for job in self.scan.jobs.values():
            if self._status(job) != "running":
                yield self._other(JobFacts.of(job))

    def _other(self, facts: JobFacts) -> OtherJob:
        job, status = facts.job, self._status(facts.job)
        metrics = getattr(facts.word, "metrics", {}) or facts.metrics
        told = str(getattr(facts.word, "why", "") or getattr(facts.word, "error", ""))
        why = self._wait(facts) if status == "waiting" else told
        return OtherJob(
            job.name, status, facts.epochs, facts.most_epochs, metrics, self.scan.seconds_of(job, self.now), why,
            self._joules(job),
        )  # fmt: skip
