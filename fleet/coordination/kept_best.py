"""Which checkpoint a run keeps as a job's best: what the journal says of it and what is there agree, whatever happens.

A trainer gives a new best checkpoint its name before it tells rank 0, and rank 0 removes the one before only when the
journal has the new one. So the one that the journal names is there at any time. Where ranks, or all, were lost between,
`settle_best` holds what is there against the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fleet.coordination.bookkeeper import Bookkeeper
from fleet.coordination.checkpointed import Standing
from fleet.coordination.protocol import CheckpointWritten
from fleet.journal import events
from fleet.journal.directory import RunDirectory
from trainers.state.best_checkpoint import Best, best_file, drop_others, is_kept, keep_again


def record_checkpoint(books: Bookkeeper, event: CheckpointWritten) -> None:
    """Write down that a job was saved; if it is its best checkpoint, the one before goes."""
    keys = {**asdict(event), "best": told_best(event.best)}
    books.record(events.Checkpoint(**keys))
    if event.best is not None and event.best.epoch == event.epoch:
        drop_others(Path(event.path).parent, event.best.epoch)


def settle_best(
    books: Bookkeeper, folder: Path, job: str, found: Standing, told: Mapping[str, Best | None] | None = None
) -> None:
    """As nobody trains a job, let its folder have the best checkpoint of the history with which it goes on, if any.

    Args:
        folder: where its checkpoints lie.
        told: job -> what the journal said last, None: that none is kept; not given: not known.
    """
    best = found.best
    if told is not None and best is None and told.get(job) is None:
        return
    if best is not None and not is_kept(folder, best.epoch) and not keep_again(folder, best.epoch):
        best = None
    if told is None or best != told.get(job):
        books.record(events.BestKept(job=job, best=told_best(best)))
    drop_others(folder, None if best is None else best.epoch, later=True)


@dataclass(frozen=True)
class KeptBest:
    """A job's best checkpoint.

    Attributes:
        best: it tells the epoch, and the value of the metric by which that was the best.
        path: where the file lies.
    """

    best: Best
    path: Path


def told_best(best: Best | None) -> events.Best | None:
    """What the journal says of a best epoch."""
    return None if best is None else events.Best(best.metric, best.value, best.epoch)


def told_bests(told: Iterable[events.Event]) -> dict[str, Best | None]:
    """Job -> its best epoch by the last event that says which is kept; None: none is. Others were never told."""
    found: dict[str, Best | None] = {}
    for event in told:
        if isinstance(event, events.BestKept) or (isinstance(event, events.Checkpoint) and event.best is not None):
            best = event.best
            found[event.job] = None if best is None else Best(best.metric, best.value, best.epoch)
    return found


def kept_bests(directory: Path, told: Iterable[events.Event]) -> dict[str, KeptBest]:
    """Job -> its best checkpoint, of those whose file is there."""
    files = RunDirectory(directory)
    found = {
        job: KeptBest(best, best_file(files.checkpoints(job), best.epoch))
        for job, best in told_bests(told).items()
        if best is not None
    }
    return {job: kept for job, kept in found.items() if kept.path.is_file()}
