"""Checkpoints of a job that are needed for longer than its newest ones are kept.

To one of them a job may go back that trains ahead of what is wanted of it; from one of them others may go on.

They lie in the folder `settled` of the job's folder under the names that they had there, as further names of the same
files.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from preprocess.files.writing import PARTIAL, cause, make_folder, name_again
from trainers.state.checkpoint import CheckpointError, checkpoint_files


def keep_way_back(folder: Path, epoch: int) -> None:
    """Keep the checkpoint that a job's folder has of an epoch's end; it is on the disk when this returns.

    CheckpointError if it cannot be kept.
    """
    kept = way_back(folder, epoch)
    try:
        make_folder(kept.parent)
        name_again(folder / kept.name, kept)
    except OSError as error:
        raise _unkept(kept, error) from error


def go_back(folder: Path, epoch: int) -> None:
    """Let the checkpoint of an epoch's end be the newest of a job's folder; those after it go. May be called again.

    CheckpointError if it is not there any more; then nothing has changed.
    """
    kept, place = way_back(folder, epoch), folder / way_back(folder, epoch).name
    try:
        if not place.exists():
            name_again(kept, place)
        for path in checkpoint_files(folder):
            if path.name > place.name:  # names have numbers of a fixed width
                path.unlink(missing_ok=True)
    except OSError as error:
        raise _unkept(kept, error) from error
    drop_other_ways_back(folder, None)


def drop_way_back(folder: Path, epoch: int) -> None:
    """Keep the checkpoint of an epoch's end no longer; what cannot be removed stays."""
    kept = way_back(folder, epoch)
    with suppress(OSError):
        kept.unlink()
        kept.parent.rmdir()


def drop_other_ways_back(folder: Path, epoch: int | None) -> None:
    """Keep the checkpoint of that epoch's end alone, or none; what cannot be removed stays."""
    kept = way_back(folder, epoch or 0)
    for path in [*kept.parent.glob("epoch-*.h5"), *kept.parent.glob(f".*{PARTIAL}")]:  # the latter of killed writers
        if epoch is None or path.name != kept.name:
            with suppress(OSError):
                path.unlink()
    with suppress(OSError):
        kept.parent.rmdir()


def way_back(folder: Path, epoch: int) -> Path:
    """Return the path under which the checkpoint of an epoch's end is kept."""
    return folder / "settled" / f"epoch-{epoch:05}-step-000000.h5"


def _unkept(kept: Path, error: OSError) -> CheckpointError:
    wrong = f"cannot be kept, or gone back to: {cause(error)}"
    return CheckpointError(kept, wrong, "make room, or start the run again")
