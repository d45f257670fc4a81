"""A member of a population that goes on from another one's weights (Jaderberg et al., 2017, 3: exploit)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trainers.state.checkpoint import Checkpoint, CheckpointError, Saved, damaged, put, read, reading, write
from trainers.state.state_file import Damaged, Index, array_in, copy_state, index_of, open_sealed, structure_in
from trainers.state.tree import Unread, flatten_unread, unread


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
    return replace(
        own, parameters=other.parameters, workers=workers, optimizer=optimizer, task_state=other.task_state
    )  # fmt: skip


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
