"""How a run stands: what its journal and its lock say, as records that `fleet status` prints and gives as JSON."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fleet.journal import events
from fleet.journal.journal import event_of
from fleet.journal.lock import NAME, SILENT_SECONDS, Holder
from fleet.report.journal_scan import JournalScan, ScannedJob, read_snapshot


@dataclass(frozen=True)
class RunningJob:
    """A job that trains now.

    Attributes:
        epochs, most_epochs: finished ones, and those of its spec; None: not known.
        metrics: of its last epoch.
        rate: samples/s; None: nobody knows yet.
        seconds: until its last epoch ends, if nothing ends it sooner; None: nobody knows.
        source: of `rate`: `epoch` (its last one, waits included), `steps` (the first ones) or `plan` (the policy's).
        held: device-seconds so far.
        joules: used so far; None: nothing tells it.
    """

    job: str
    devices: tuple[int, ...]
    hosts: tuple[str, ...]
    epochs: int
    most_epochs: int | None
    metrics: Mapping[str, float]
    rate: float | None
    seconds: float | None
    source: str
    held: float
    joules: float | None = None


@dataclass(frozen=True)
class OtherJob:
    """A job that does not train now, as `RunningJob`; `why`: what it waits for, or why it ended."""

    job: str
    status: str
    epochs: int
    most_epochs: int | None
    metrics: Mapping[str, float]
    held: float
    why: str
    joules: float | None = None


@dataclass(frozen=True)
class Writer:
    """Who writes the run directory.

    Attributes:
        name: the process and its node; empty: nobody.
        lives: whether it does; None: it is on another node, and its record has not been renewed for long.
        silent: seconds since it renewed its record; None: there is none.
    """

    name: str
    lives: bool | None
    silent: float | None


@dataclass(frozen=True)
class SearchStanding:
    """How a run's search stands.

    Attributes:
        metric: by which trials are compared.
        trials, most_trials: how many have begun, and may; None: as many as the epochs allow.
        epochs, most_epochs: that trials were told to train, and may; None: as many as the trials need.
        most_hours: of the run, that the search may take; None: any number.
        best: name of the trial whose last result is best; empty: there is no result.
        best_value: its metric, best_epochs: after how many epochs; None: there is no result.
        values: dotted path -> what was suggested for it.
        front: with several metrics, names of the trials than whose last results no other's are better in all.
    """

    metric: str
    trials: int
    most_trials: int | None
    epochs: int
    most_epochs: int | None
    most_hours: float | None = None
    best: str = ""
    best_value: float | None = None
    best_epochs: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    front: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunStanding:
    """How a run stands.

    Attributes:
        state: starting, measuring, training, stopping, done, failed, stopped, killed or silent.
        counts: of jobs by status: running, waiting, stopped (by name), paused or pruned (by a search), done, failed.
        waits: of the waiting jobs, how many for what.
        devices, busy: how many there are in the last session, and how many of them jobs hold now.
        device_seconds, reserved: held by jobs, and of all devices for as long as sessions lasted.
        seconds: of the run, over all sessions.
        left: seconds until all jobs are done, as far as can be told; None: cannot.
        unrated: unfinished jobs of which nobody knows how fast they train.
        last_event, age: kind of the journal's last event, and seconds since then.
        scheduler: batch system and id of the last session's allocation; empty: none that is known.
        allocation_left: seconds until the allocation ends; None: not known.
        joules, idle_joules: used by jobs, and by hosts while devices idled; None: nothing tells it.
        searches: whether there are trials of a search that is not over: more may train than those that are known.
        search: how the run's search stands; None: it has none.
        damaged: lines of the journal that are not as they were written, of those that were looked at.
    """

    directory: str
    name: str
    state: str
    policy: str
    sessions: int
    counts: Mapping[str, int]
    waits: Mapping[str, int]
    running: tuple[RunningJob, ...]
    devices: int
    busy: int
    device_seconds: float
    reserved: float
    seconds: float
    left: float | None
    unrated: int
    last_event: str
    age: float | None
    writer: Writer
    scheduler: str = ""
    allocation_left: float | None = None
    warnings: int = 0
    damaged: int = 0
    measuring: str = ""
    searches: bool = False
    search: SearchStanding | None = None
    joules: float | None = None
    idle_joules: float | None = None
    others: tuple[OtherJob, ...] = ()


def writer_of(directory: Path, clock: Callable[[], float] = time.time) -> tuple[Writer, float]:
    """Who writes there, and the second since 1970 at which that process began, 0 if there is none.

    The lock's record names a process, which can be seen on its own node. On another node, such as a login node, the
    time at which its record was written last tells whether it lives: it is renewed every few seconds.
    """
    path = directory / NAME
    holder = Holder.read(path)
    if holder is None:
        return Writer("", False, None), 0.0
    silent = max(0.0, clock() - path.stat().st_mtime)
    lives = holder.lives()
    if lives is None and silent < SILENT_SECONDS:
        lives = True
    return Writer(str(holder), lives, silent), float(holder.started)


@dataclass(frozen=True)
class JobFacts:
    """A job's lines, taken apart as far as they are needed; None where there are none.

    Attributes:
        word: that which gave it its status.
        search: the last decision on it.
    """

    job: ScannedJob
    spec: events.Job | None
    epoch: events.Epoch | None
    word: events.Event | None
    search: events.Decided | None

    @classmethod
    def of(cls, job: ScannedJob) -> JobFacts:
        """What the job's lines say."""
        spec, epoch, search = (told_in(line) for line in (job.spec, job.epoch, job.search))
        return cls(
            job,
            spec if isinstance(spec, events.Job) else None,
            epoch if isinstance(epoch, events.Epoch) else None,
            told_in(job.word),
            search if isinstance(search, events.Decided) else None,
        )

    @property
    def epochs(self) -> int:
        """Epochs that it has finished."""
        return max(getattr(told, "epoch", 0) for told in (self.epoch, self.word))

    @property
    def most_epochs(self) -> int | None:
        """The most epochs that the job's spec allows; None: not known."""
        return self.spec.max_epochs or None if self.spec is not None else None

    @property
    def samples(self) -> float | None:
        """Samples of an epoch; None: not known."""
        return self.spec.samples or None if self.spec is not None else None

    @property
    def samples_left(self) -> float | None:
        """Samples until its last epoch ends, or that after which its search wants its result; None: not known."""
        most = self.search.end if self.search is not None else self.most_epochs
        return None if self.samples is None or most is None else float(self.samples) * max(0, most - self.epochs)

    @property
    def metrics(self) -> Mapping[str, float]:
        """Those of its last epoch."""
        return {} if self.epoch is None else self.epoch.metrics


def told_in(line: bytes) -> events.Event | None:
    """The event of a line that a scan kept; None: there is none."""
    return event_of(line) if line else None


def pace_of(facts: JobFacts, planned: Mapping[str, float]) -> tuple[float | None, str]:
    """Samples/s of a running job, and what says so; see `RunningJob`.

    Args:
        planned: what the policy expects, by job.
    """
    job, epoch, count = facts.job, facts.epoch, len(facts.job.devices)
    if facts.samples and epoch is not None and len(epoch.devices) == count and epoch.seconds > 0:
        return facts.samples / epoch.seconds, "epoch"
    timed = told_in(job.timed)
    if isinstance(timed, events.Timed) and timed.count == count:
        return timed.rate, "steps"
    pace = planned.get(job.name) or 0.0
    return (float(pace), "plan") if pace > 0 else (None, "")


def seconds_left(facts: JobFacts, pace: float | None, now: float) -> float | None:
    """Seconds until a running job's last epoch ends, at this pace; what it did since its last line counts."""
    left = facts.samples_left
    if left is None or not pace:
        return None
    since = max(facts.job.since, 0.0 if facts.epoch is None else facts.epoch.t)
    return max(0.0, left / pace - max(0.0, now - since))


def work_left(facts: JobFacts) -> float | None:
    """Device-seconds that a waiting job still needs, on one device if it never trained; None: nobody knows."""
    left, epoch = facts.samples_left, facts.epoch
    if left is None or not facts.samples:
        return None
    if epoch is not None and epoch.seconds > 0:
        return left / facts.samples * epoch.seconds * len(epoch.devices)
    rates = told_in(facts.job.rates)
    fitted = rates.fitted if isinstance(rates, events.Rates) else ()
    return left / fitted[0] if fitted and fitted[0] > 0 else None


def run_seconds_left(
    running: Sequence[tuple[float | None, int]], waiting: Sequence[float | None], devices: int
) -> tuple[float | None, int]:
    """Seconds until all jobs are done if no device ever rests; and how many jobs nobody knows, which count as the mean.

    No less than the longest of those that run now, and of one waiting job on one device of a run that has one.

    Args:
        running: seconds left and devices of each job that trains.
        waiting: device-seconds of each that waits.
    """
    known = [seconds * count for seconds, count in running if seconds is not None]
    known += [work for work in waiting if work is not None]
    unknown = len(running) + len(waiting) - len(known)
    if not devices or (unknown and not known):
        return None, unknown
    mean = math.fsum(known) / len(known) if known else 0.0
    longest = max((seconds for seconds, _ in running if seconds is not None), default=0.0)
    return max(longest, (math.fsum(known) + mean * unknown) / devices), unknown


def search_standing(scan: JournalScan) -> SearchStanding | None:
    """Tell how a run's search stands; None if the run has none, or it has not begun."""
    bounds = scan.bounds
    if bounds is None:
        return None
    trials = [job for job in scan.jobs.values() if job.begun]
    epochs = sum(event.end for job in trials if isinstance(event := told_in(job.search), events.Decided))
    standing = SearchStanding(bounds.metric, len(trials), bounds.trials, epochs, bounds.epochs, bounds.hours)
    sign = -1.0 if bounds.mode == "max" else 1.0
    results = [event for job in trials if isinstance(event := told_in(job.result), events.Result)]
    best = min(
        ((sign * event.value, event.trial, event) for event in results if event.value is not None),
        key=lambda each: each[:2],
        default=None,
    )
    if best is None:
        return standing
    _, trial, result = best
    begun = (event for job in trials if isinstance(event := told_in(job.begun), events.Decided))
    values = next(event.values for event in begun if event.trial == trial)
    return replace(
        standing,
        best=result.job,
        best_value=result.value,
        best_epochs=result.epoch,
        values=values,
        front=_front(bounds, results),
    )


def _front(bounds: events.Bounds, results: Sequence[events.Result]) -> tuple[str, ...]:
    """Jobs on the Pareto front, by their trials' numbers; none where the search has one metric."""
    if not bounds.further:
        return ()
    from fleet.search.virtual_time import front  # loads pydantic

    signs = [-1.0 if mode == "max" else 1.0 for mode in (bounds.mode, *(each.mode for each in bounds.further))]
    known = {one.trial: (one.job, [one.value, *one.further]) for one in results if one.value is not None}
    found = front({trial: [sign * v for sign, v in zip(signs, some)] for trial, (_, some) in known.items()})
    return tuple(known[trial][0] for trial in found)


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
            directory=str(self.directory),
            name=session.name,
            state=self.state,
            policy=session.policy,
            sessions=scan.sessions,
            counts={status: statuses[status] for status in COUNTED},
            waits=Counter(map(self._wait, facts)),
            running=running,
            devices=size,
            busy=busy,
            device_seconds=held,
            reserved=scan.reserved + size * max(0.0, self.now - scan.begin),
            seconds=self.now,
            left=left if statuses["waiting"] or running else 0.0,
            unrated=unrated,
            last_event=scan.last,
            age=self.age,
            writer=self.writer,
            scheduler=f"{allocation.scheduler} {allocation.id}".strip(),
            allocation_left=self._allocation_left(),
            warnings=scan.warnings,
            damaged=scan.damaged,
            measuring=scan.measuring,
            searches=any(job.search for job in jobs) and self.state != "done",
            search=search_standing(scan),
            joules=scan.energy.used if scan.energy else None,
            idle_joules=scan.energy.idle if scan.energy else None,
            others=tuple(self._others()) if whole else (),
        )

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
            job=job.name,
            devices=job.devices,
            hosts=tuple(host for host in hosts if host),
            epochs=facts.epochs,
            most_epochs=facts.most_epochs,
            metrics=facts.metrics,
            rate=rate,
            seconds=seconds_left(facts, rate, self.now),
            source=source,
            held=self.scan.seconds_of(job, self.now),
            joules=self._joules(job),
        )

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
            job=job.name,
            status=status,
            epochs=facts.epochs,
            most_epochs=facts.most_epochs,
            metrics=metrics,
            held=self.scan.seconds_of(job, self.now),
            why=why,
            joules=self._joules(job),
        )


def as_json(standing: RunStanding) -> dict[str, Any]:
    """The keys of `fleet status --json`."""
    content = asdict(standing)
    others = {job.pop("job"): job for job in content.pop("others")}
    running = {job.pop("job"): {"status": "running", **job} for job in content.pop("running")}
    used = standing.device_seconds / standing.reserved if standing.reserved > 0 else None
    return {
        **content,
        "counts": dict(standing.counts),
        "waits": dict(standing.waits),
        "seconds_left": content.pop("left"),
        "device_hours": standing.device_seconds / 3600,
        "used": used,
        "jobs": {**running, **others},
    }
