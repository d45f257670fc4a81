"""The books of a run as a session opens them: what the journal and the checkpoints tell of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fleet.coordination.job_record import UNRATED, JobRecord, Standing, standing
from fleet.coordination.live_state import LiveState, Recorder, recall
from fleet.journal import events
from fleet.journal.journal import read_journal
from fleet.machine.cluster_map import ClusterMap
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.service_level import ServiceLevel
from fleet.scheduling.policies import Policy
from fleet.session.chosen_batches import Batches
from fleet.session.devices_to_plan import devices_to_plan
from fleet.session.lending_checks import lending_of
from fleet.session.mixed_kinds import mixes_kinds
from fleet.session.opening.extended_spec import reopen
from fleet.session.skipped_samples import SkippedBook
from fleet.session.stages.output import Output
from fleet.session.wall_clock import WallClock
from fleet.session.wire import Wire
from fleet.spec import Job
from fleet.spec.job import data_key
from fleet.workers.rank import Rank
from fleet.workers.runtime import Runtime


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


def open_books(rank: Rank, wire: Wire, output: Output, policy: Policy) -> Books:
    """Read the books as earlier sessions left them; the other ranks learn of batches and of skipped samples."""
    batches = Batches(rank, wire.to_trainers, policy.chooses_batches)
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
        wire.to_preprocessors(order)
        wire.to_trainers(order)
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
        job.name, UNRATED, job.virtual_workers, mixed_kinds=mixed_kinds,
        arrival=job.arrival, deadline=clock.due(job.arrival, job.deadline),
        soft=job.soft, tenant=job.user or "", priority=job.priority, guaranteed=job.guaranteed,
        minimum_devices=job.minimum_devices, batch=job.global_batch,
        remaining=job.stop.epochs * samples, epoch=samples, data=data_key(job),
        passing=runtime.data_of(job.name).samples / samples,
        service_level=None if level is None else ServiceLevel(level.devices, level.window),
    )  # fmt: skip
    range_, changes = batches.range_of(job, samples), job.batch is not None and job.batch.change == "epochs"
    schedule = runtime.batches_of(job.name) if changes else None
    record = JobRecord.of(state, f"{data_key(job)}/{job.order_seed}", range_, schedule)
    growth = job.batch.growth if job.batch is not None else None
    return record if growth is None else replace(record, growth=growth)
