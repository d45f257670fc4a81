"""Checkpoints of trials that will train no more: with `checkpoints.keep: 0` none stay, but the best trial's.

A trial that goes on after all, as somebody lets the search have more trials, trains again from its first step: to the
same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from fleet.coordination.live_state import Recorder
from fleet.journal import events
from fleet.search import Search
from fleet.session.search.ahead import Files
from trainers.state.checkpoint import checkpoint_files
from trainers.state.kept_checkpoints import drop_others


class Retention:
    """Drops them.

    Args:
        search: whose trials.
        books: of the run.
        name: of a trial's job.
        files: of the run.
        keep: how many of a job's newest checkpoints stay; only with 0 any are dropped.
    """

    def __init__(self, search: Search, books: Recorder, name: Callable[[int], str], files: Files, keep: int) -> None:
        self._search, self._books, self._name, self._files, self._keep = search, books, name, files, keep

    def look(self, stopped: Iterable[str], ahead: Callable[[int], bool]) -> None:
        """Drop what nobody can go on from.

        Args:
            stopped: jobs of which the search wants no more.
            ahead: whether a trial has trained further than it is known to be wanted.
        """
        if self._keep:
            return
        names, best = set(stopped), self._search.best()
        kept = {*self._search.front(), *([best[0]] if best is not None else [])}
        hopeless = set(self._search.hopeless())
        for trial in range(self._search.begun):
            if (trial in hopeless or self._name(trial) in names) and trial not in kept and not ahead(trial):
                self._drop(trial)

    def resumed(self, trial: int) -> None:
        """Let the books know that a trial goes on from its first step, if its checkpoints were not kept."""
        name = self._name(trial)
        job = self._books.state.jobs.get(name)
        if trial in self._files.dropped and job is not None and job.checkpoint is None:
            self._books.note(self._books.state.stands_at, name, self._files.stands(name))

    def _drop(self, trial: int) -> None:
        name = self._name(trial)
        job = self._books.state.jobs.get(name)
        if job is None or job.checkpoint is None or not job.is_paused or job.status != "pending":
            return
        self._files.dropped.add(trial)
        folder = self._files.folder(name)
        for path in checkpoint_files(folder):
            with suppress(OSError):
                path.unlink()
        drop_others(folder, None)
        self._books.record(events.Dropped(job=name, trial=trial, epoch=job.epoch))
