"""Batches that a policy chooses: rank 0 says which ones it may choose, and tells all ranks the choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import LiveState
from fleet.coordination.protocol import SetBatch
from fleet.scheduling.variable_batch.batch_scaling import BatchRange
from fleet.spec import Job
from fleet.workers.rank import Rank
from fleet.workers.runtime import batch_set
from trainers.task.batch_plan import BatchChange


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
