"""A member of a population that goes on from another one's weights (Jaderberg et al., 2017, 3: exploit)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainers.state.checkpoint import Checkpoint, CheckpointError


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
