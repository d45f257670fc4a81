"""Checkpoints of a job that are kept for longer than its newest ones, or taken over from another job.

The one of its best epoch lies in the folder `best` of the job's folder: which epoch was the best follows from what each
checkpoint holds of the history, so nobody has to remember it. Those to which a job may be rolled back that trains ahead
of what is wanted of it, or from which others may go on, lie in `settled`. Both are further names of the files in the
job's folder, or copies where the file system knows no further names. A member of a population inherits the checkpoint
of another one and goes on from its weights (Jaderberg et al., 2017, 3: exploit).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from preprocess.files.writing import PARTIAL, cause, make_folder, name_again
from trainers.state.checkpoint import (
    Checkpoint,
    CheckpointError,
    Saved,
    checkpoint_files,
    damaged,
    put,
    read,
    reading,
    write,
)
from trainers.state.history import Direction, History
from trainers.state.state_file import (
    Damaged,
    Index,
    array_in,
    copy_state,
    index_of,
    is_whole,
    open_sealed,
    structure_in,
)
from trainers.state.tree import Unread, flatten_unread, unread


@dataclass(frozen=True)
class Best:
    """A job's best epoch so far, counted from 1, and the value that a metric had then."""

    metric: str
    value: float
    epoch: int


@dataclass(frozen=True)
class ByMetric:
    """By which metric the best epoch is found, and whether more or less of it is better."""

    metric: str
    better: Direction


def best_of(history: History | Sequence[Mapping[str, float]], by: ByMetric | None) -> Best | None:
    """Return the best of the epochs in `history`; None: there is none, or no metric is asked for.

    KeyError, naming the metrics there are, if the history lacks it.
    """
    found = None if by is None else History.of(history).best(by.metric, by.better)
    return None if by is None or found is None else Best(by.metric, *found)


def best_file(folder: Path, epoch: int) -> Path:
    """Return the path of the checkpoint of an epoch, from 1, that is kept as the best of a job's folder."""
    return folder / "best" / f"epoch-{epoch:05}-step-000000.h5"


def keep_best(folder: Path, epoch: int) -> None:
    """Keep the checkpoint that a job's folder has of an epoch's end; the one kept before stays, see `drop_others`.

    It is on the disk when this returns. CheckpointError if it cannot be kept.
    """
    kept = best_file(folder, epoch)
    try:
        make_folder(kept.parent)
        name_again(folder / kept.name, kept)
    except OSError as error:
        wrong = f"cannot be kept as the best: {cause(error)}"
        mend = "make room, or take `best` away from `checkpoints`; checkpoints written before are intact"
        raise CheckpointError(kept, wrong, mend) from error


def drop_others(folder: Path, best: int | None, later: bool = False) -> None:
    """Remove checkpoints that were kept as the best before. What cannot be removed stays until the next time.

    Args:
        best: the best epoch; None: there is none, all go.
        later: checkpoints of later epochs go, too; else they stay, as nobody has told of them yet.
    """
    kept = best_file(folder, best or 0)
    for path in kept.parent.glob(f".*{PARTIAL}"):  # of killed writers
        with suppress(OSError):
            path.unlink()
    for path in kept.parent.glob("epoch-*.h5"):
        earlier = (len(path.name), path.name) < (len(kept.name), kept.name)
        if best is None or earlier or (later and path.name != kept.name):
            with suppress(OSError):
                path.unlink()


def keep_again(folder: Path, epoch: int) -> bool:
    """Keep the checkpoint of a best epoch that is no longer kept, if it is among the newest; return whether it is."""
    with suppress(OSError, CheckpointError):
        if is_whole(folder / best_file(folder, epoch).name):
            keep_best(folder, epoch)
            return True
    return False


def is_kept(folder: Path, epoch: int) -> bool:
    """Whether the best checkpoint of that epoch is there, every byte as it was written."""
    with suppress(OSError):
        return is_whole(best_file(folder, epoch))
    return False


def keep_rollback(folder: Path, epoch: int) -> None:
    """Keep the checkpoint that a job's folder has of an epoch's end; it is on the disk when this returns.

    CheckpointError if it cannot be kept.
    """
    kept = rollback_file(folder, epoch)
    try:
        make_folder(kept.parent)
        name_again(folder / kept.name, kept)
    except OSError as error:
        raise _unkept(kept, error) from error


def roll_back(folder: Path, epoch: int) -> None:
    """Let the checkpoint of an epoch's end be the newest of a job's folder; those after it go. May be called again.

    CheckpointError if it is not there any more; then nothing has changed.
    """
    kept, place = rollback_file(folder, epoch), folder / rollback_file(folder, epoch).name
    try:
        if not place.exists():
            name_again(kept, place)
        for path in checkpoint_files(folder):
            if path.name > place.name:  # names have numbers of a fixed width
                path.unlink(missing_ok=True)
    except OSError as error:
        raise _unkept(kept, error) from error
    drop_other_rollbacks(folder, None)


def drop_rollback(folder: Path, epoch: int) -> None:
    """Keep the checkpoint of an epoch's end no longer; what cannot be removed stays."""
    kept = rollback_file(folder, epoch)
    with suppress(OSError):
        kept.unlink()
        kept.parent.rmdir()


def drop_other_rollbacks(folder: Path, epoch: int | None) -> None:
    """Keep the checkpoint of that epoch's end alone, or none; what cannot be removed stays."""
    kept = rollback_file(folder, epoch or 0)
    for path in [*kept.parent.glob("epoch-*.h5"), *kept.parent.glob(f".*{PARTIAL}")]:  # the latter of killed writers
        if epoch is None or path.name != kept.name:
            with suppress(OSError):
                path.unlink()
    with suppress(OSError):
        kept.parent.rmdir()


def rollback_file(folder: Path, epoch: int) -> Path:
    """Return the path under which the checkpoint of an epoch's end is kept."""
    return folder / "settled" / f"epoch-{epoch:05}-step-000000.h5"


def _unkept(kept: Path, error: OSError) -> CheckpointError:
    wrong = f"cannot be kept, or gone back to: {cause(error)}"
    return CheckpointError(kept, wrong, "make room, or start the run again")


def inherit(path: Path, own: Path, other: Path, arguments: Mapping[str, Any]) -> Saved:
    """Write the checkpoint of a job that goes on with another one's weights; see `inherited`, and `write`.

    The other's file is copied, and what is the job's own is written into the copy. Every byte of the other's, and of
    what is the job's own, has been verified when this returns.
    """
    mine, theirs = _opened(own), _opened(other)
    if mine is None or theirs is None:  # of an older version
        return write(path, inherited(read(own), read(other), arguments))
    made = inherited(mine.checkpoint, theirs.checkpoint, arguments)
    structure, arrays = flatten_unread(made.as_tree())
    kept = {name for name, array in arrays.items() if (array.file, array.path) == (other, name)}
    lies_in = {own: mine, other: theirs}
    new = {name: lies_in[array.file].read(array) for name, array in arrays.items() if name not in kept}

    def copied(partial: Path) -> str:
        try:
            return copy_state(partial, other, structure, kept, new)
        except Damaged as error:
            raise damaged(other) from error

    return put(path, copied)


def inherited(own: Checkpoint, other: Checkpoint, arguments: Mapping[str, Any]) -> Checkpoint:
    """Return the checkpoint of a job that goes on with another one's weights, and other optimizer arguments.

    What was learnt is the other's: parameters, buffers, the optimizer's state, the task's. Where the job stands stays
    its own: epochs, history, the schedule's place, and the random state of each virtual worker.

    Args:
        own: the job's, at the end of an epoch.
        other: of a job with the same model, optimizer and virtual workers.
        arguments: optimizer argument -> its value from now on, in all parameter groups.

    CheckpointError if the other's model is another one, or the optimizer has no such argument.
    """
    shapes = [{name: value.shape for name, value in each.parameters.items()} for each in (own, other)]
    if shapes[0] != shapes[1] or len(own.workers) != len(other.workers):
        wrong = f"cannot go on from {other.job}, whose parameters or virtual workers are others"
        raise CheckpointError(f"checkpoint of job {own.job}", wrong, "let members of a population differ in optimizers")
    workers = [
        {**theirs, "random": mine["random"], "loss_sum": mine["loss_sum"], "samples": mine["samples"]}
        for mine, theirs in zip(own.workers, other.workers)
    ]
    groups = [_with(own.job, group, arguments) for group in own.optimizer["param_groups"]]
    optimizer = {**other.optimizer, "param_groups": groups}
    return replace(own, parameters=other.parameters, workers=workers, optimizer=optimizer, task_state=other.task_state)


def _with(job: str, group: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    lacking = sorted(arguments.keys() - group.keys())
    if lacking:
        wrong = f"its optimizer has no {lacking[0]} that can change while it trains"
        raise CheckpointError(f"checkpoint of job {job}", wrong, "vary other arguments of the optimizer")
    told = {name: tuple(value) if isinstance(group[name], tuple) else value for name, value in arguments.items()}
    return {**group, **told}


@dataclass(frozen=True)
class _Opened:
    """A checkpoint all of whose arrays are still in its file, and where they lie there."""

    path: Path
    index: Index
    checkpoint: Checkpoint

    def read(self, array: Unread) -> np.ndarray:
        with reading(self.path), open_sealed(self.path) as file:
            return array_in(file, self.index.arrays[array.path])


def _opened(path: Path) -> _Opened | None:
    """A checkpoint without its arrays, which are yet to be verified; None: its file does not tell where they lie."""
    with reading(path), open_sealed(path) as file:
        index = index_of(file)
        if index is None:
            return None
        shapes = {name: place.shape for name, place in index.arrays.items()}
        return _Opened(path, index, Checkpoint.from_tree(unread(structure_in(file, index), path, shapes)))
