"""Checkpoints of a job that are kept for longer than its newest ones.

The one of its best epoch lies in the folder `best` of the job's folder: which epoch was the best follows from what each
checkpoint holds of the history, so nobody has to remember it. Those to which a job may be rolled back that trains ahead
of what is wanted of it, or from which others may go on, lie in `settled`. Both are further names of the files in the
job's folder, or copies where the file system knows no further names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from preprocess.files.writing import PARTIAL, cause, make_folder, name_again
from trainers.state.checkpoint import CheckpointError, checkpoint_files
from trainers.state.history import Direction, History
from trainers.state.state_file import is_whole


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
