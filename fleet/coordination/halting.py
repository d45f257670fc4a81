"""Jobs that are stopped by name, and taken up again, while the others go on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from fleet.coordination.bookkeeper import Bookkeeper
from fleet.coordination.executor import Executor, GroupEnded, StopReason
from fleet.coordination.outside import Outside
from fleet.journal import events


class Wishes(Protocol):
    """Who wants which jobs stopped."""

    def jobs(self) -> Collection[str]:
        """Their names."""


class Halting:
    """Lets jobs leave that somebody wants stopped, and books them once what they did is saved.

    Args:
        executor: saves jobs that wait in memory.
        books: of the run.
        outside: knows the wishes.
    """

    def __init__(self, executor: Executor, books: Bookkeeper, outside: Outside) -> None:
        self._executor, self._books, self._outside = executor, books, outside
        self._wishes: Collection[str] = ()

    def look(self, leave: Callable[[str, StopReason], None], measured: str) -> list[str]:
        """Do what is newly wished; return the jobs of which a plan has to know.

        Args:
            leave: asks a job to leave its devices.
            measured: the job that is measured now; it is stopped after that.
        """
        wishes, jobs, running = self._outside.halted(), self._books.ledger.jobs, self._books.ledger.running
        over = [n for n in self._wishes if n not in wishes and n in jobs and _is_stopped(self._books, n)]
        self._wishes = wishes
        waiting = [name for name in wishes if name in jobs and jobs[name].waits and name != measured]
        for name in waiting:
            if name in running:
                leave(name, "asked")
        idle = [name for name in waiting if name not in running]
        if idle and self._executor.save_held():
            idle = []  # until what they did is on the disk
        for name in idle:
            _halt(self._books, name)
        for name in over:
            _take_up(self._books, name)
        return [*idle, *over]

    def ended(self, event: GroupEnded) -> None:
        """A group has ended; a job that was asked to leave has written its checkpoint."""
        if event.why == "stopped" and event.reason == "asked":
            _halt(self._books, event.job)


def heed(wishes: Wishes, books: Bookkeeper) -> None:
    """Book, as a session begins, which jobs were stopped by name since the last one, and which are taken up again."""
    wanted = wishes.jobs()
    for name, job in list(books.ledger.jobs.items()):
        if name in wanted and job.waits:
            _halt(books, name)
        elif name not in wanted and _is_stopped(books, name):
            _take_up(books, name)


def _halt(books: Bookkeeper, name: str) -> None:
    job = books.ledger.jobs[name]
    books.record(events.Halted(job=name, epoch=job.epoch, step=job.step))


def _take_up(books: Bookkeeper, name: str) -> None:
    books.record(events.TakenUp(job=name))


def _is_stopped(books: Bookkeeper, name: str) -> bool:
    return books.ledger.jobs[name].status == "stopped"
