"""Where a job stands by its checkpoints, whatever the journal and messages had time to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fleet.coordination.protocol import CheckpointWritten
from fleet.journal import events
from fleet.journal.directory import RunDirectory
from trainers import CheckpointError, Stop, converged, file_name, latest_good
from trainers.state.best_checkpoint import Best, ByMetric, best_file, best_of, drop_others, is_kept, keep_again
from trainers.task.batch_schedule import BatchChange, from_lists


@dataclass(frozen=True)
class Standing:
    """From where a job goes on.

    Attributes:
        epoch: finished ones.
        step: inside the epoch.
        path: path of its newest whole checkpoint; None: it begins anew.
        metrics: metrics of the last finished epoch.
        batches: how its batch has changed until then.
        ended: why it is done, if it is; empty: it is not.
        best: its best epoch until then, if best checkpoints are kept.
        rejected: newer checkpoints that are damaged, newest first.
    """

    epoch: int = 0
    step: int = 0
    path: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    ended: str = ""
    rejected: tuple[CheckpointError, ...] = ()
    batches: tuple[BatchChange, ...] = ()
    best: Best | None = None


def standing(folder: Path, stop: Stop, by: ByMetric | None = None) -> Standing:
    """Read a job's checkpoints; a job may be done before anybody could be told.

    Args:
        by: what the best checkpoint is found by; None: none is kept.
    """
    saved, rejected = latest_good(folder)
    if saved is None:
        return Standing(rejected=tuple(rejected))
    metrics = dict(saved.history.at(saved.epoch))
    ended, changes = converged(saved.history, stop) or "", from_lists(saved.batches or ())
    best = best_of(saved.history, by) if by is not None and saved.history.has(by.metric) else None
    path = str(folder / file_name(saved))
    return Standing(saved.epoch, saved.step, path, metrics, ended, tuple(rejected), changes, best)


def record_checkpoint(record: Callable[[events.Event], object], event: CheckpointWritten) -> None:
    """Write down that a job was saved; if it is its best checkpoint, the one before goes."""
    keys = {**asdict(event), "best": told_best(event.best)}
    record(events.Checkpoint(**keys))
    if event.best is not None and event.best.epoch == event.epoch:
        drop_others(Path(event.path).parent, event.best.epoch)


def settle_best(
    record: Callable[[events.Event], object],
    folder: Path,
    job: str,
    found: Standing,
    told: Mapping[str, Best | None] | None = None,
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
        record(events.BestKept(job=job, best=told_best(best)))
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
