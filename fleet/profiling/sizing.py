"""What a job needs, found without training it: parameters, memory and operations, on torch's meta device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from preprocess import SampleLayout
from trainers.repeatable.no_exit import no_exit

# What one device is taken to do where nothing was measured; only ratios between jobs are worth something then.
ASSUMED_OPERATIONS_PER_SECOND = {"cpu": 2e10}
ASSUMED_OF_ACCELERATORS = 2e13
ASSUMED_PARAMETERS_PER_SECOND = 1e9  # for models that cannot be counted


@dataclass(frozen=True)
class Size:
    """A job's needs in bytes, for one virtual worker at a time on a device.

    `activation_bytes` and `operations` (floating point operations of forward and backward, a sample) are None where the
    model cannot be run on the meta device.
    """

    parameters: int
    parameter_bytes: int
    buffer_bytes: int
    optimizer_bytes: int
    activation_bytes: int | None
    operations: float | None

    def device_bytes(self, workers: int) -> int:
        """Memory on a device that runs `workers` virtual workers: what is shared once, gradients and buffers for
        each.
        """
        shared = self.parameter_bytes * 2 + self.optimizer_bytes + (self.activation_bytes or 0)
        return shared + workers * (self.parameter_bytes + self.buffer_bytes)


class _SavedBytes:
    """Sums what autograd keeps for the backward pass, each storage once."""

    def __init__(self) -> None:
        self.total = 0
        self._kept: list[Any] = []
        self._seen: set[int] = set()

    def pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._seen:
            self._seen.add(storage._cdata)
            self._kept.append(storage)  # alive, so that no address comes twice
            self.total += storage.nbytes()
        return tensor


def size_of(task: Any, layout: SampleLayout) -> Size:
    """Size the job of `task`, whose samples look like `layout`."""
    with no_exit(), torch.device("meta"):
        model: nn.Module = task.model()
    saved, operations = _SavedBytes(), None
    optimizer = task.optimizer(model)
    try:
        with no_exit():
            operations = _run_once(task, model, layout, saved) / task.batch_size
            optimizer.step()
    except (Exception, SystemExit):
        operations = None
    return Size(
        parameters=sum(p.numel() for p in model.parameters()),
        parameter_bytes=_bytes(list(model.parameters())),
        buffer_bytes=_bytes(list(model.buffers())),
        optimizer_bytes=_bytes(
            [v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
        ),
        activation_bytes=saved.total if operations is not None else None,
        operations=operations,
    )


def _run_once(task: Any, model: nn.Module, layout: SampleLayout, saved: _SavedBytes) -> float:
    """One forward and backward of a batch, on no data; returns its operations."""
    inputs = torch.empty(
        (task.batch_size, *layout.input_shape), dtype=getattr(torch, layout.input_dtype), device="meta"
    )
    targets = torch.empty(
        (task.batch_size, *layout.target_shape), dtype=getattr(torch, layout.target_dtype), device="meta"
    )
    with FlopCounterMode(display=False) as counter:
        with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor):
            loss = task.loss(model, (inputs, targets))
        loss.backward()
    return float(counter.get_total_flops())


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass(frozen=True)
class MemoryProblem:
    """Jobs that do not fit; the text says which, what they need and what there is."""

    text: str


def memory_problem(
    sizes: Mapping[str, Size], workers: Mapping[str, int], devices: int, per_device: int, node_bytes: int | None
) -> MemoryProblem | None:
    """Tell whether every job fits a device, and, where devices share the node's memory, whether the largest fit
    together.

    Args:
        sizes: the sizes of each job.
        workers: virtual workers of each job; on one device it runs them all in turn.
        devices: trainers of a node.
        per_device: bytes of a device.
        node_bytes: bytes that the node's trainers share (CPU trainers); None where each device has its own.
    """
    needs = {job: size.device_bytes(workers[job]) for job, size in sizes.items()}
    largest = sorted(needs, key=lambda job: -needs[job])
    too_large = [job for job in largest if needs[job] > per_device]
    if too_large:
        job = too_large[0]
        others = f" (and {len(too_large) - 1} more)" if len(too_large) > 1 else ""
        return MemoryProblem(
            f"job {job}{others} needs about {readable(needs[job])} of memory "
            f"with its {workers[job]} virtual workers on one device, "
            f"and a device has {readable(per_device)}; make its batch or the network smaller, "
            "or raise resources.memory_gib"
        )
    together = sum(needs[job] for job in largest[:devices])
    if node_bytes is not None and together > node_bytes:
        names = ", ".join(largest[:devices])
        fits = max(k for k in range(devices) if sum(needs[job] for job in largest[:k]) <= node_bytes)
        return MemoryProblem(
            f"jobs {names} can run at the same time on {devices} trainers of a node "
            f"and then need about {readable(together)}, "
            f"and the node has {readable(node_bytes)}; use at most {max(1, fits)} trainers a node, "
            "or raise resources.memory_gib"
        )
    return None


def assumed_rate(size: Size, device: str) -> float:
    """Samples/s of one device of a kind, guessed from the operations of a sample."""
    speed = ASSUMED_OPERATIONS_PER_SECOND.get(device, ASSUMED_OF_ACCELERATORS)
    if size.operations:
        return speed / size.operations
    return ASSUMED_PARAMETERS_PER_SECOND / max(1, size.parameters)


def readable(count: int) -> str:
    """Bytes for people, in GiB, or in MiB where that is nothing."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
