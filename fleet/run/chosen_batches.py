"""Batches that a policy chooses: rank 0 says which ones it may choose, and tells all ranks the choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fleet.coordination.ledger import Ledger
from fleet.coordination.protocol import SetBatch
from fleet.run.ranks.rank import Rank
from fleet.scheduling.variable_batch.batch_scaling import BatchRange
from fleet.spec import Job


@dataclass
class Batches:
    """The batches of jobs with a `batch_range`. A job's is chosen when it first starts, and stays.

    So a job has the weights of a plain DDP run with that batch, however often it moves.

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
        if job.batch_range is None or not self.open:
            return None
        return BatchRange(job.batch_range[0], min(job.batch_range[1], samples), job.virtual_workers)

    def restore(self, ledger: Ledger) -> None:
        """What an earlier session chose stays."""
        for record in ledger.jobs.values():
            if record.batch is not None and record.batch != self.rank.runtime.job(record.name).global_batch:
                self.set(record.name, record.batch)

    def set(self, job: str, batch: int) -> None:
        """A step of the job has so many samples from now on."""
        size = batch // self.rank.runtime.job(job).virtual_workers
        self.rank.runtime = self.rank.runtime.with_batch(job, size)
        self.tell(SetBatch(job, size))

    def fingerprint(self, job: str, batch_size: int, device: str) -> str:
        """The fingerprint of the job with another batch size of each virtual worker."""
        return self.rank.runtime.with_batch(job, batch_size).fingerprint(job, device)

    def idle(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs with a range of which nobody chooses."""
        return [job for job in jobs if job.batch_range is not None and not self.open]
