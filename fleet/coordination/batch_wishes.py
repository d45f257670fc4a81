"""The batches that a policy wants: when they hold, and how the jobs come by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleet.coordination.bookkeeper import Bookkeeper
from fleet.coordination.executor import Executor, GroupEnded
from fleet.coordination.outside import Outside
from fleet.journal import events


class BatchWishes:
    """Settles the batch of each job that a policy may choose one for.

    A job that chooses once has its batch for good when it first starts. Another one's changes between two epochs alone:
    one that is inside an epoch leaves its devices at its end, and goes on there at once. One whose batch may not change
    so much at once does so again at the end of the next epoch, until it has what it wants.

    Args:
        executor: is told of jobs that leave at the end of their epoch.
        books: what is settled is written there.
        outside: tells everybody.
    """

    def __init__(self, executor: Executor, books: Bookkeeper, outside: Outside) -> None:
        self._executor, self._books, self._outside = executor, books, outside
        self._wanted: dict[str, int] = {}  # by jobs inside an epoch: samples of a step from its end on

    def settle(self, starting: Iterable[str], wanted: Mapping[str, int]) -> None:
        """Give jobs that are about to start the batch that they begin with.

        Args:
            wanted: samples of a step, of the jobs that shall have others than they have.
        """
        for name in starting:
            job = self._books.ledger.jobs[name]
            self._wanted.pop(name, None)
            if job.batches is None or job.batch is None:
                continue
            target = job.batches.nearest(wanted.get(name, job.batch))
            batch = job.batches.nearest(job.towards(target))
            if job.schedule is None:
                self._books.record(events.Batch(job=name, batch=batch))
            elif job.step and not job.is_as_it_has(batch):
                self._wanted[name] = target
            elif not job.is_as_it_has(batch):
                self._books.record(events.Batch(job=name, batch=batch, epoch=job.epoch, parts=job.parts_of(batch)))
                if batch != target:
                    self._wanted[name] = target
            self._outside.tell_batch(name)

    def started(self, job: str) -> None:
        """A job trains; if it wants another batch, that comes at the end of this epoch."""
        if job in self._wanted:
            self._executor.stop(job, "epoch")

    def due(self, event: GroupEnded) -> Mapping[str, int]:
        """The batch for which a job has left its devices; empty if it left them for something else."""
        batch = self._wanted.pop(event.job, None)
        return {event.job: batch} if batch is not None and event.reason == "epoch" else {}
