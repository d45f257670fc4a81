"""What a session writes as it goes: the journal, and the view and the metrics that listen to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from fleet.journal.directory import RunDirectory
from fleet.journal.journal import Journal
from fleet.report.live import LiveView, PlainView, view_for
from fleet.report.tracking import Tracking
from fleet.search.space import TrialColumns
from fleet.session.console import rank_console
from fleet.spec import SearchSpec


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
