"""`batch_size: largest` as the estimate of memory has it: for plans, which try nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from fleet.session.batch_bounds import BatchBounds
from fleet.session.input_checks import rooms_of
from fleet.session.memory_checks import Room
from fleet.session.prediction import PredictionInput, prepare
from fleet.spec import importable
from fleet.workers.agreement import BadInput
from fleet.workers.runtime import KnownSizes
from trainers.device.memory import share_of


def with_estimated_batches(ready: PredictionInput, start: float | None) -> PredictionInput:
    """Put a number in place of each `batch_size: largest`: the bound of memory, data, rings and the wish.

    Args:
        start: when the run would begin, seconds since 1970; None: now.

    Raises:
        BadInput: nothing tells how much memory a job takes.
    """
    runtime, sizes, cluster = ready.runtime, dict(ready.sizes), ready.prediction.cluster
    asking = [job for job in runtime.spec.jobs if job.largest_batch is not None]
    if not asking:
        return ready
    rooms, known = _rooms(ready), KnownSizes()
    with importable([runtime.spec.folder, Path.cwd()]):
        for job in asking:
            try:
                bound = BatchBounds(runtime, cluster, rooms, sizes).of(job)
            except ValueError as error:
                raise BadInput(f"job {job.name}: {error}") from None
            runtime = runtime.with_batch(job.name, bound.size)
            sizes[job.name] = known.of(runtime, job.name)
    return prepare(runtime.spec, ready.shape, start)


def _rooms(ready: PredictionInput) -> Sequence[Room]:
    """The nodes; their accelerators are taken to be as large as this machine's."""
    cluster = ready.prediction.cluster
    rooms = rooms_of(ready.runtime.spec, cluster)
    if ready.device == "cpu":
        return rooms
    own = _device_bytes(ready.device) * share_of(cluster.members)
    return [replace(room, device=own, members=cluster.members) for room in rooms]


def _device_bytes(device: str) -> float:
    """Memory of this machine's first accelerator; infinite where it has none."""
    module = torch.get_device_module(device)
    if not (module.is_available() and hasattr(module, "get_device_properties")):
        return math.inf
    return float(module.get_device_properties(0).total_memory)
