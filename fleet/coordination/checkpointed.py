"""Where a job stands by its checkpoints, whatever the journal and messages had time to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainers import CheckpointError, Stop, converged, file_name, latest_good
from trainers.state.best_checkpoint import Best, ByMetric, best_of
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
