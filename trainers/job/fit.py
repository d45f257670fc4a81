"""Whether a checkpoint is that of a given job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trainers.repeatable.determinism import PinsDiffer
from trainers.state.checkpoint import Checkpoint, CheckpointError
from trainers.step.update import Update

_MEND = "go on with the job as it was, or start this one anew"
_NOT_SAID = "not said: it is the state that workers share, without theirs"


@dataclass(frozen=True)
class BuiltJob:
    """A job as its task builds it."""

    name: str
    seed: int
    order_seed: int
    virtual_workers: int
    batch_size: int
    model: nn.Module
    updates: Sequence[Update]
    keeps_state: bool


def check_fit(checkpoint: Checkpoint, job: BuiltJob) -> None:
    """Raise CheckpointError, which says what is another job's, unless a checkpoint is this job's.

    A difference missed here would be an error inside torch, or none until the first step.
    """
    with misfits_named(checkpoint):
        saved, own = _of_checkpoint(checkpoint), _of_job(job)
    different = next((name for name in own if saved[name] not in (own[name], _NOT_SAID)), None)
    if different is not None:
        found = f"its {different} is {saved[different]}, that of {job.name} is {own[different]}"
        raise CheckpointError(f"checkpoint of job {checkpoint.job}", found, _MEND)


@contextmanager
def misfits_named(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn what Python and torch raise at a state that does not fit, though its names do, into CheckpointError."""
    try:
        yield
    except (PinsDiffer, torch.OutOfMemoryError):
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        found = f"it cannot be gone on from ({type(error).__name__}: {error})"
        raise CheckpointError(f"checkpoint of job {checkpoint.job}", found, _MEND) from error


def _of_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    laid_out = sorted(index for bucket in checkpoint.layout["buckets"] for index in bucket)
    return {
        "seed": checkpoint.seed,
        "order's seed": checkpoint.seed if checkpoint.order_seed is None else checkpoint.order_seed,
        "virtual_workers": checkpoint.virtual_workers,
        "batch_size": checkpoint.batch_size,
        "parameters": {name: tuple(value.shape) for name, value in checkpoint.parameters.items()},
        "schedule": checkpoint.schedule is not None,
        "layout of buckets": _parameters(laid_out),
        "set of buffers": sorted(checkpoint.workers[0]["buffers"]) if checkpoint.workers else _NOT_SAID,
        "optimizer": _settings(checkpoint.optimizer),
        "parts with optimizers of their own": _parts(
            {part: _place(tree) for part, tree in (checkpoint.parts or {}).items()}
        ),
        "task's own state": _kept(checkpoint.task_state is not None),
    }


def _of_job(job: BuiltJob) -> dict[str, Any]:
    parameters = dict(job.model.named_parameters())
    first, *others = job.updates
    return {
        "seed": job.seed,
        "order's seed": job.order_seed,
        "virtual_workers": job.virtual_workers,
        "batch_size": job.batch_size,
        "parameters": {name: tuple(parameter.shape) for name, parameter in parameters.items()},
        "schedule": first.schedule is not None,
        "layout of buckets": _parameters(list(range(len(first.parameters)))),
        "set of buffers": sorted(name for name, _ in job.model.named_buffers()),
        "optimizer": _settings(first.optimizer.state_dict()),
        "parts with optimizers of their own": _parts({update.part: _place(update.as_tree()) for update in others}),
        "task's own state": _kept(job.keeps_state),
    }


def _place(tree: dict[str, Any]) -> list[Any]:
    """What of a part's optimizer is compared: its settings, how many parameters are in buckets, and its schedule."""
    laid_out = sum(len(bucket) for bucket in tree["layout"]["buckets"])
    return [_settings(tree["optimizer"]), laid_out, tree["schedule"] is not None]


def _parts(places: dict[str, list[Any]]) -> str:
    return ", ".join(f"{part} {place}" for part, place in places.items()) or "none"


def _kept(is_kept: bool) -> str:
    return "kept by state()" if is_kept else "not kept"


def _parameters(indices: list[int]) -> str:
    """Which parameters take gradients; numbered from 0 on without a gap, as they should be, only how many."""
    return f"of {len(indices)} parameters" if indices == list(range(len(indices))) else f"of parameters {indices}"


def _settings(state: dict[str, Any]) -> list[tuple[list[str], int]]:
    """The names of each group's settings, and how many parameters it has."""
    return [(sorted(group), len(group["params"])) for group in state["param_groups"]]
