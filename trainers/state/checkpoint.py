"""A job's state in one HDF5 file that is written once and complete or absent.

A checkpoint holds what EasyScale, SC'23, 3.2 lists: the contexts of all virtual workers, the training progress, and
one copy of parameters, optimizer and schedule; so it restores onto any number of trainers. A file appears under its
name only when it is complete and on the disk: random name, digests, fsync, rename, fsync of the folder. Behind the HDF5
data stands a seal (see `trainers.state.state_file`): no torn or flipped byte goes unseen. Who reads a checkpoint need
not trust who wrote it: nothing in it runs, all it holds lies in it, and no memory is taken that its bytes do not fill.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from preprocess.files.memory import NeedsTooMuchMemory
from preprocess.files.reading import NotAFile
from preprocess.files.writing import PARTIAL, cause, make_folder, partial_name, put_in_place
from trainers.state.history import History
from trainers.state.state_file import Damaged, Outline, UnknownFormat, read_outline, read_state, write_state
from trainers.state.tree import flatten, unflatten

_NAME = re.compile(r"epoch-\d{5,}-step-\d{6,}\.h5")
_MEND = "go on from an earlier checkpoint"
_NAME_ONE = "give the path of a checkpoint that was written"
_UNREADABLE = (  # what HDF5, JSON, NumPy and torch raise on content that makes no sense
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
_KINDS: dict[str, Any] = {  # of a checkpoint's fields
    "seed virtual_workers batch_size epoch step steps": int,
    "parameters optimizer layout pins": dict,
    "workers": list,
    "history": History,
    "batches": (list, type(None)),
    "schedule parts": (dict, type(None)),
    "order_seed": (int, type(None)),
    "job": str,
}
_PLAIN = (bool, int, float, str, type(None))
_OPTIONAL = frozenset({"parts", "task_state", "batches", "order_seed"})


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, read or used; the text names the file, the cause and the mend."""

    def __init__(self, path: Path | str, wrong: str, mend: str) -> None:
        super().__init__(f"{path}: {wrong}; {mend}")
        self.path = Path(path)
        self.wrong = wrong
        self.mend = mend


@dataclass(frozen=True)
class Checkpoint:
    """The state of a job between two steps.

    job, seed, virtual_workers, batch_size: what must agree with the job that goes on.
    epoch: finished epochs. step: steps done since. steps: steps done since the job began.
    parameters: by name. workers: each virtual worker's context, in rank order. optimizer, schedule: their state_dicts.
    layout: the gradient buckets. pins: settings that results depend on.
    history: the metrics of the finished epochs, as far as they are kept.
    parts: of a task with several optimizers, those after the first: part -> {"optimizer", "schedule", "layout"}.
    batches: where the batch changed (see `trainers.task.batch_plan`): [epoch, size, parts] each; None: never.
        `batch_size` is the task's own.
    order_seed: the samples' order is drawn from it where it is not `seed`.
    task_state: what the task's `state()` gave; None where it has none, and in files of versions that knew of none.
    """

    job: str
    seed: int
    virtual_workers: int
    batch_size: int
    epoch: int
    step: int
    steps: int
    parameters: Mapping[str, Tensor]
    workers: list[dict[str, Any]]
    optimizer: dict[str, Any]
    schedule: dict[str, Any] | None
    layout: dict[str, Any]
    history: History
    pins: dict[str, str]
    parts: dict[str, dict[str, Any]] | None = None
    task_state: Any = None
    batches: list[list[int]] | None = None
    order_seed: int | None = None

    @property
    def updates(self) -> list[dict[str, Any]]:
        """Return each optimizer's state, with its schedule's and its buckets' layout, in order."""
        first = {"optimizer": self.optimizer, "schedule": self.schedule, "layout": self.layout}
        return [first, *(self.parts or {}).values()]

    def as_tree(self) -> dict[str, Any]:
        """Return nested plain data (`trainers.state.tree`); what is not there is left out, as older versions expect."""
        tree = {field.name: getattr(self, field.name) for field in fields(self)}
        if isinstance(self.history, History):
            tree |= self.history.as_tree()
        return {name: value for name, value in tree.items() if name not in _OPTIONAL or value is not None}

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Checkpoint:
        """Return the checkpoint that `as_tree` described."""
        epochs = tree.get("history")
        history = {"history": History(epochs, tree.get("past"))} if isinstance(epochs, list) else {}
        return cls(**{name: value for name, value in tree.items() if name != "past"} | history)


@dataclass(frozen=True)
class Saved:
    """A checkpoint's file: where it is, its size in bytes, and its content's digest (blake2b, hexadecimal)."""

    path: Path
    bytes: int
    digest: str


def file_name(checkpoint: Checkpoint) -> str:
    """Return the name under which a job's folder keeps this checkpoint, such as epoch-00007-step-000000.h5."""
    return f"epoch-{checkpoint.epoch:05}-step-{checkpoint.step:06}.h5"


def write(path: Path | str, checkpoint: Checkpoint) -> Saved:
    """Write a checkpoint to `path`, all or nothing; an older file there stays until the new one is complete.

    CheckpointError if the disk is full or the folder cannot be written.
    """
    return put(Path(path), lambda partial: write_state(partial, *flatten(checkpoint.as_tree())))


def put(path: Path, write_to: Callable[[Path], str]) -> Saved:
    """As `write`, by what writes a checkpoint to a path that it is given and returns its content's digest."""
    partial = partial_name(path)
    try:
        make_folder(path.parent)
        digest = write_to(partial)
        size = partial.stat().st_size
        put_in_place(partial, path)
        return Saved(path, size, digest)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            path, str(error), "keep such values out of the state of the optimizer, the schedule and the task"
        ) from error
    except OSError as error:
        raise CheckpointError(
            path,
            f"cannot be written: {cause(error)}",
            "make room or choose another folder; checkpoints written before are intact",
        ) from error
    finally:
        with suppress(OSError):  # it has its own name by now, or there was no such file, nor folder
            partial.unlink()


def read(path: Path | str) -> Checkpoint:
    """Read a checkpoint and verify its seal. CheckpointError if it is missing, damaged or of another format."""
    path = Path(path)
    with reading(path):
        return _decoded(unflatten(*read_state(path)))


def outline(path: Path) -> Outline:
    """Return what a checkpoint's file tells of its arrays, which are not verified. CheckpointError as of `read`."""
    with reading(path):
        return read_outline(path)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Let what goes wrong while a checkpoint is read be a CheckpointError that says it."""
    try:
        yield
    except FileNotFoundError as error:
        raise CheckpointError(path, "no such file", _NAME_ONE) from error
    except NotAFile as error:
        raise CheckpointError(path, str(error.strerror), _NAME_ONE) from error
    except NeedsTooMuchMemory as error:
        raise CheckpointError(path, str(error.strerror), _MEND) from error
    except Damaged as error:
        raise damaged(path) from error
    except UnknownFormat as error:
        raise CheckpointError(path, str(error), "use the version that wrote it") from error
    except _UNREADABLE as error:
        raise CheckpointError(path, f"is damaged or no checkpoint ({error})", _MEND) from error


def damaged(path: Path) -> CheckpointError:
    """Return the error that a file's bytes are not as they were written."""
    return CheckpointError(path, "is damaged or no checkpoint: its bytes do not match their digest", _MEND)


def _decoded(tree: Any) -> Checkpoint:
    """Return the checkpoint of a tree that a file holds. TypeError or ValueError names what is not as it should be."""
    saved = Checkpoint.from_tree(tree)
    for names, kind in _KINDS.items():
        for name in names.split():
            if not isinstance(getattr(saved, name), kind):
                raise ValueError(f"its {name} is a {type(getattr(saved, name)).__name__}")
    lacking = [
        *(name for each in saved.updates for name in {"buckets", "used"} - set(each["layout"])),
        *(name for each in saved.updates for name in {"state", "param_groups"} - set(each["optimizer"])),
        *(name for worker in saved.workers for name in {"rank", "buffers"} - set(worker)),
    ]
    if lacking or len(saved.workers) != saved.virtual_workers:
        raise ValueError(f"it lacks {', '.join(sorted(lacking)) or 'virtual workers'}")
    _check_contents(saved)
    return saved


def _check_contents(saved: Checkpoint) -> None:
    """Raise ValueError, or another error of Python's, unless what the fields hold can be that."""
    counts = [getattr(saved, name) for name in ["seed", "virtual_workers", "batch_size", "epoch", "step", "steps"]]
    buckets, used, ranks = saved.layout["buckets"], saved.layout["used"], range(saved.virtual_workers)
    attributes = [worker.get("attributes", {}) for worker in saved.workers]
    laid_out = [index for bucket in buckets for index in bucket]
    holds = {
        "counts": all(0 <= count < 2**63 for count in counts) and saved.virtual_workers > 0,
        "parameters": all(isinstance(value, Tensor) for value in saved.parameters.values()),
        "virtual workers": [worker["rank"] for worker in saved.workers] == list(ranks),
        "buffers": all(isinstance(value, Tensor) for worker in saved.workers for value in worker["buffers"].values()),
        "attributes": all(type(value) in _PLAIN for own in attributes for value in own.values())
        and all(isinstance(name, str) for own in attributes for name in own),
        "layout of buckets": sorted(laid_out) == list(range(len(laid_out))) and all(buckets),
        "used parameters": used is None or [type(use) for use in used] == [bool] * len(laid_out),
        "history": all(_is_figure(*entry) for metrics in saved.history for entry in metrics.items()),
        "pins": all(isinstance(word, str) for entry in saved.pins.items() for word in entry),
    }
    if wrong := [name for name, good in holds.items() if not good]:
        raise ValueError(f"its {wrong[0]} cannot be so")


def _is_figure(name: object, value: object) -> bool:
    return isinstance(name, str) and (isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63))


def latest_good(folder: Path | str) -> tuple[Checkpoint | None, list[CheckpointError]]:
    """Return a folder's newest checkpoint that is whole, or None, and the errors of newer ones, newest first."""
    rejected: list[CheckpointError] = []
    for path in reversed(checkpoint_files(Path(folder))):
        try:
            return read(path), rejected
        except CheckpointError as error:
            rejected.append(error)
    return None, rejected


def newest_file(folder: Path | str) -> Path | None:
    """Return the path of a folder's newest checkpoint, whole or not; None: it has none."""
    return next(reversed(checkpoint_files(Path(folder))), None)


def prune(folder: Path | str, keep: int) -> list[Path]:
    """Remove all but a job's newest `keep` checkpoints, and what killed writers left; return what went.

    What cannot be removed stays until the next time: the new checkpoint is there.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}, at least 1 checkpoint must stay")
    folder = Path(folder)
    gone = []
    for path in [*checkpoint_files(folder)[:-keep], *sorted(folder.glob(f".*{PARTIAL}"))]:
        with suppress(OSError):
            path.unlink()
            gone.append(path)
    return gone


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the folder's checkpoints, oldest first."""
    found = [path for path in folder.glob("*.h5") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)])
