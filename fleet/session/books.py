"""The books of a run as a session opens them: what the journal and the checkpoints tell of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fleet.coordination.coordinator import MOST_LOSSES, costs_too_many
from fleet.coordination.failures import TornDataError
from fleet.coordination.job_record import UNRATED, JobRecord, Standing, standing
from fleet.coordination.live_state import LiveState, Recorder, recall
from fleet.coordination.protocol import SampleSkipped, SampleTorn, SetBatch, SkipSamples
from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.events import Session
from fleet.journal.journal import Journal, read_journal
from fleet.journal.work_note import take_deaths
from fleet.machine.cluster_map import ClusterMap
from fleet.report.live import LiveView, PlainView, view_for
from fleet.report.tracking import Tracking
from fleet.scheduling import Policy
from fleet.scheduling.model.batch_scaling import BatchRange
from fleet.scheduling.model.jobs import JobState, ServiceLevel
from fleet.search.space import TrialColumns
from fleet.session.console import rank_console
from fleet.session.plannable_devices import devices_to_plan, lending_of, mixes_kinds
from fleet.session.rank_messages import Broadcast
from fleet.session.whole_spec import reopen
from fleet.spec import Job, SearchSpec
from fleet.spec.job import data_key
from fleet.spec.values import unix_seconds
from fleet.workers.rank import Rank
from fleet.workers.runtime import Runtime, batch_set
from preprocess.samples.errors import CorruptLimitError, SkippedSample
from preprocess.samples.order import HELD_OUT, TRAIN
from trainers.task.batch_plan import BatchChange


@dataclass(frozen=True)
class Books:
    """What a session keeps account of.

    Attributes:
        keeper: keeps the ledger and the journal.
        skipped: tells the samples that could not be made.
        batches: what the policy chose.
        clock: the wall time of the run's seconds.
        found: where jobs stood by their checkpoints when the session began; those that were done are left out.
        longer: jobs that train longer from now on, and until which epoch.
    """

    keeper: Recorder
    skipped: SkippedBook
    batches: Batches
    clock: WallClock
    found: Mapping[str, Standing]
    longer: Mapping[str, int]

    @property
    def ledger(self) -> LiveState:
        """The account of jobs, devices and rounds."""
        return self.keeper.state


@dataclass(frozen=True)
class Output:
    """The run directory, its open journal, and what a person sees meanwhile."""

    directory: RunDirectory
    journal: Journal
    view: LiveView | PlainView


@contextmanager
def output_to(directory: RunDirectory, jobs: int, search: SearchSpec | None = None) -> Iterator[Output]:
    """Open the journal, and let a view of so many jobs and the metrics listen to it; all is closed at the end."""
    with (
        closing(Journal(directory.journal)) as journal,
        closing(view_for(rank_console(), jobs)) as view,
        closing(Tracking(directory.path, trials=None if search is None else TrialColumns.of(search))) as tracking,
    ):
        journal.listen(view.event)
        journal.listen(tracking.take)
        yield Output(directory, journal, view)


def open_books(rank: Rank, broadcast: Broadcast, output: Output, policy: Policy) -> Books:
    """Read the books as earlier sessions left them; the other ranks learn of batches and of skipped samples."""
    batches = Batches(rank, broadcast.to_trainers, policy.chooses_batches)
    clock = WallClock.read(output.directory.journal, output.journal.seconds(), time.time())
    ledger, spec = _ledger(rank, batches, clock), rank.runtime.spec
    recall(ledger, read_journal(output.directory.journal))
    longer = reopen(ledger, output.directory.path, read_journal(output.directory.journal))
    output.view.recall({name: job.result() for name, job in ledger.jobs.items() if job.epoch or not job.waits})
    cut = _cut_off(read_journal(output.directory.journal))
    found = {
        name: stands(rank, name) for name, job in ledger.jobs.items() if job.waits or (job.is_paused and name in cut)
    }
    keeper = Recorder(ledger, output.journal)
    for name, place in found.items():
        keeper.note(ledger.stands_at, name, place)
    batches.restore(ledger)
    limits = {name: data.corrupt_limit for name, data in spec.data.items() if name in rank.runtime.facts}
    skipped = SkippedBook(output.journal, limits, read_journal(output.directory.journal))
    for order in skipped.orders():
        broadcast.to_preprocessors(order)
        broadcast.to_trainers(order)
    return Books(keeper, skipped, batches, clock, found, longer)


def _cut_off(told: Iterable[events.Event]) -> set[str]:
    """Jobs that trained when a session was cut off: a trial may have ended its last epoch, and not be saved."""
    running: set[str] = set()
    for event in told:
        if isinstance(event, events.Started):
            running.add(event.job)
        elif isinstance(event, (events.Paused, events.Stopped, events.Done, events.Failed)):
            running.discard(event.job)
    return running


def stands(rank: Rank, job: str) -> Standing:
    """Where a job stands by its checkpoints."""
    return standing(rank.directory.checkpoints(job), rank.runtime.stop(job), rank.runtime.best_by(job))


def _ledger(rank: Rank, batches: Batches, clock: WallClock) -> LiveState:
    spec = rank.runtime.spec
    jobs = [record_of(job, rank.runtime, rank.cluster, batches, clock) for job in spec.jobs]
    cluster, lending = devices_to_plan(rank.cluster), lending_of(rank.runtime, rank.cluster)
    return LiveState(cluster, jobs, spec.seed, spec.policy.restart, spec.policy.margin, lending)


def record_of(job: Job, runtime: Runtime, cluster: ClusterMap, batches: Batches, clock: WallClock) -> JobRecord:
    """The line of a job that has not begun."""
    mixed_kinds, _ = mixes_kinds(runtime, cluster, job.name)
    samples, level = runtime.trained_in_epoch(job.name), job.service_level
    state = JobState(
        job.name,
        UNRATED,
        job.virtual_workers,
        mixed_kinds=mixed_kinds,
        arrival=job.arrival,
        deadline=clock.due(job.arrival, job.deadline),
        soft=job.soft,
        tenant=job.user or "",
        priority=job.priority,
        guaranteed=job.guaranteed,
        minimum_devices=job.minimum_devices,
        batch=job.global_batch,
        remaining=job.stop.epochs * samples,
        epoch=samples,
        data=data_key(job),
        passing=runtime.data_of(job.name).samples / samples,
        service_level=None if level is None else ServiceLevel(level.devices, level.window),
    )
    range_, changes = batches.range_of(job, samples), job.batch is not None and job.batch.change == "epochs"
    schedule = runtime.batches_of(job.name) if changes else None
    record = JobRecord.of(state, f"{data_key(job)}/{job.order_seed}", range_, schedule)
    growth = job.batch.growth if job.batch is not None else None
    return record if growth is None else replace(record, growth=growth)


@dataclass(frozen=True)
class WallClock:
    """When the run's seconds were.

    Attributes:
        sessions: for each start, the second of the run at which it began, and the time of second 0 by its clock, in
            seconds since 1970; the last one goes on.
    """

    sessions: tuple[tuple[float, float], ...]

    @classmethod
    def read(cls, journal: Path, second: float, unix: float) -> WallClock:
        """The clock of a start for which it is now that second of the run, after those that the journal tells of."""
        sessions, last = [], 0.0
        for event in read_journal(journal):
            if isinstance(event, Session):
                sessions.append((last, event.unix - event.t))
            last = max(last, event.t)
        return cls((*sessions, (last, unix - second)))

    def due(self, arrival: float, deadline: float | str | None) -> float:
        """The second of the run at which a job should be done, by the clock of this start; infinite: none.

        Args:
            arrival: second of the run at which it comes, or came by the clock of the start that went on then.
            deadline: seconds after that, with those between two starts; or a time as `timestamp` gives it.
        """
        now = self.sessions[-1][1]
        if deadline is None:
            return math.inf
        if isinstance(deadline, str):
            return unix_seconds(deadline) - now
        came = next(zero for begin, zero in reversed(self.sessions) if begin <= arrival or not begin)
        return arrival + deadline + came - now


MOST_NAMED = 5


class SkippedBook:
    """The samples that the preprocessors of a run skipped.

    Args:
        journal: each is written there, once.
        limits: by data set, how many there may be.
        told: events of the run's earlier sessions.
    """

    def __init__(self, journal: Journal, limits: Mapping[str, int], told: Iterable[events.Event]) -> None:
        self._journal, self._limits = journal, limits
        self._samples: dict[str, dict[tuple[str, int], SkippedSample]] = {name: {} for name in limits}
        for event in told:
            if isinstance(event, events.Skipped) and event.data in self._samples:
                self._enter(_sample_of(event))

    @property
    def counts(self) -> dict[str, int]:
        """How many samples of each data set were skipped."""
        return {name: len(samples) for name, samples in self._samples.items()}

    def take(self, message: SampleSkipped | SampleTorn) -> None:
        """Write a sample down that was skipped, unless it is known.

        Raises:
            CorruptLimitError: it is one too many.
            TornDataError: none took its place.
        """
        if isinstance(message, SampleTorn):
            raise TornDataError(message.data, f"rank {message.rank}: {message.text}", message.lines)
        sample = message.sample
        if self._enter(sample):
            self._journal.write(
                events.Skipped(
                    data=sample.data,
                    kind=sample.kind,
                    sample=sample.sample,
                    substitute=sample.substitute,
                    epoch=sample.epoch,
                    stage=sample.stage,
                    reason=sample.reason,
                    rank=message.rank,
                )
            )
            self.check(sample.data)

    def check(self, *data: str) -> None:
        """Raise CorruptLimitError if one of these data sets has more than it may have; a task's own has no limit."""
        for name in self._limits.keys() & set(data):
            samples, limit = self._samples[name], self._limits[name]
            if len(samples) > limit:
                raise CorruptLimitError(name, limit, list(map(str, samples.values()))[:MOST_NAMED])

    def orders(self) -> list[SkipSamples]:
        """What preprocessors are told at the start: a sample whose source raised stays skipped, mended or not.

        One that a transform refused is tried in each epoch, whose random numbers may suit it.
        """
        return [
            SkipSamples(name, train=_indices(samples, TRAIN), held_out=_indices(samples, HELD_OUT))
            for name, samples in self._samples.items()
            if any(sample.stage == "source" for sample in samples.values())
        ]

    def _enter(self, sample: SkippedSample) -> bool:
        """Say whether the sample was not known."""
        samples = self._samples.setdefault(sample.data, {})
        known = (sample.kind, sample.sample) in samples
        samples.setdefault((sample.kind, sample.sample), sample)
        return not known


def _indices(samples: Mapping[tuple[str, int], SkippedSample], kind: str) -> tuple[int, ...]:
    return tuple(sorted(key[1] for key, sample in samples.items() if key[0] == kind and sample.stage == "source"))


def _sample_of(event: events.Skipped) -> SkippedSample:
    keys = ("data", "kind", "sample", "substitute", "epoch", "reason", "stage")
    return SkippedSample(**{key: getattr(event, key) for key in keys})


@dataclass
class Batches:
    """The batches of jobs that leave them to a policy: chosen when a job first starts, or changed at epochs' ends.

    So a job has the weights of a plain DDP run with those batches, however often it moves.

    Args:
        rank: whose runtime learns of them.
        tell: sends news to all trainers.
        open: whether the policy chooses.
    """

    rank: Rank
    tell: Callable[[SetBatch], None]
    open: bool

    def range_of(self, job: Job, samples: int) -> BatchRange | None:
        """The batches of which the policy may choose; no step has more than the `samples` that there are."""
        if job.batches is None or not self.open:
            return None
        return BatchRange(job.batches[0], min(job.batches[1], samples), job.virtual_workers)

    def restore(self, ledger: LiveState) -> None:
        """What an earlier session chose stays."""
        for record in ledger.jobs.values():
            self.tell_of(record)

    def tell_of(self, record: JobRecord) -> None:
        """Let everybody know a job's batch, if it is another than they know."""
        runtime, name = self.rank.runtime, record.name
        if record.schedule is not None:
            if record.schedule != runtime.batches_of(name):
                changes = record.schedule.changes or (BatchChange(0, record.schedule.own),)
                self._set(SetBatch(name, change.size, change.epoch, change.parts) for change in changes)
        elif record.batch is not None and record.batch != runtime.job(name).global_batch:
            since = None if runtime.job(name).batch is None else 0  # else the learning rate follows
            self._set([SetBatch(name, record.batch // record.limit, since)])

    def _set(self, news: Iterable[SetBatch]) -> None:
        for each in news:
            self.rank.runtime = batch_set(self.rank.runtime, each)
            self.tell(each)

    def fingerprint(self, job: str, batch_size: int, device: str) -> str:
        """The fingerprint of the job with another batch size of each virtual worker."""
        return self.rank.runtime.with_batch(job, batch_size).fingerprint(job, device)

    def idle(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs with a range of which nobody chooses."""
        return [job for job in jobs if job.batches is not None and not self.open]


def write_deaths(directory: RunDirectory, keeper: Recorder) -> None:
    """Jobs whose code ended a process have failed; those that may have are tried some more times."""
    ledger = keeper.state
    for death in take_deaths(directory.at_work):
        job = ledger.jobs.get(death.job)
        if job is None or not job.waits:
            continue
        error = death.error
        if not death.stack:
            keeper.record(events.RankCost(job=death.job, rank=death.rank))
            losses = ledger.jobs[death.job].ranks_cost
            if losses <= MOST_LOSSES:
                continue
            error = f"{error}; {costs_too_many(losses)}"
        keeper.record(
            events.Failed(job=death.job, epoch=job.epoch, error=error, traceback=death.stack, cost_ranks=True)
        )
