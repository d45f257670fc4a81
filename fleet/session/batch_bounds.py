"""How large the batch of a job with `batch_size: largest` may be, by all that is known before it is tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fleet.machine.cluster_map import ClusterMap
from fleet.profiling.sizing import Size
from fleet.session.input_checks import Room, grown_size, memory_problem, ring_problem, rooms_of
from fleet.session.lanes import ring_of
from fleet.session.prediction import PredictionInput, prepare
from fleet.spec import Job, importable
from fleet.workers.agreement import BadInput
from fleet.workers.runtime import KnownSizes, Runtime
from trainers.device.device_memory import share_of


@dataclass(frozen=True)
class BatchBound:
    """Samples of a virtual worker, and what lets them be no more: "most", "data", "ring" or "memory"."""

    size: int
    limit: str


@dataclass(frozen=True)
class BatchBounds:
    """Bounds of a run's jobs.

    Args:
        runtime: with numbers that stand in for those to be chosen.
        cluster: the cluster map.
        rooms: the nodes, as the memory check sees them.
        sizes: all jobs have them, with what is chosen already; those of which nothing is are as small as can be.
    """

    runtime: Runtime
    cluster: ClusterMap
    rooms: Sequence[Room]
    sizes: Mapping[str, Size]

    def of(self, job: Job) -> BatchBound:
        """The bound of a job.

        Raises:
            ValueError: nothing tells how much memory it takes, and nothing else could; the text says what to do.
        """
        assert job.largest_batch is not None
        samples, most = self.runtime.samples_of(job.name), job.largest_batch.most
        found = BatchBound(max(1, samples // job.virtual_workers), "data")
        if most is not None and most < found.size:
            found = BatchBound(most, "most")
        found = _bounded(found, "ring", lambda size: self._has_ring(job, size))
        grown = grown_size(self.runtime, job.name)
        if grown.sample_bytes is None and most is None and any(room.device is None for room in self.rooms):
            raise ValueError(
                "batch_size: largest goes by what the network keeps for its backward pass, and it cannot be run on "
                "torch's meta device, which would tell; give batch_size a number, or {most: N}"
            )
        return _bounded(found, "memory", lambda size: self._has_room(job, grown.at(size)))

    def _has_ring(self, job: Job, size: int) -> bool:
        runtime, cluster = self.runtime.with_batch(job.name, size), self.cluster
        plan = ring_of(runtime, cluster)
        return ring_problem(runtime.spec, cluster, plan) is None

    def _has_room(self, job: Job, size: Size) -> bool:
        """Whether the job fits, beside the others; on CPUs it keeps to one trainer's share of its host."""
        workers = {each.name: each.virtual_workers for each in self.runtime.spec.jobs}
        sizes = {**self.sizes, job.name: size}
        for room in self.rooms:
            if room.device is None and size.cpu_bytes(job.virtual_workers) > room.host / room.devices:
                return False
            if memory_problem(sizes, workers, room) is not None:
                return False
        return True


def _bounded(bound: BatchBound, limit: str, fits: Callable[[int], bool]) -> BatchBound:
    """The bound, or the largest size below it that fits; one sample is let through, for others to refuse."""
    if fits(bound.size):
        return bound
    least, most = 1, bound.size
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return BatchBound(least, limit)


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
