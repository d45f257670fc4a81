"""What a job needs, found without training it: parameters, memory and operations, on torch's meta device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from traceback import format_exception_only
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from fleet.profiling.measure import largest_collated, made_up_batch
from preprocess import SampleLayout
from trainers.reduce.buckets import Layout
from trainers.repeatable.no_exit import no_exit
from trainers.repeatable.operators import OperatorsSeen
from trainers.repeatable.spared_compiler import spare_compiler
from trainers.step.compute import UnfitLoss, backward
from trainers.task.parts import is_parted, rules_of
from trainers.task.step_options import StepOptions
from trainers.task.task import loss_of, move
from trainers.task.without_memory import model_without_memory

# What one device is taken to do where nothing was measured; only ratios between jobs are worth something then.
ASSUMED_OPERATIONS_PER_SECOND = {"cpu": 2e10}
ASSUMED_OF_ACCELERATORS = 2e13
ASSUMED_PARAMETERS_PER_SECOND = 1e9  # for models that cannot be counted


@dataclass(frozen=True)
class Size:
    """A job's needs in bytes.

    `activation_bytes`: of one virtual worker's batch, as workers take turns. `gradient_bytes`: one copy, of what is
    trained. `pinned_bytes`: what such a copy takes of a host from which devices copy, see `_pinned`.
    It and `operations` (floating point operations of forward and backward, a sample) are None where the model cannot be
    run on the meta device.
    `nondeterministic`: operators, forward and backward, that torch refuses on GPUs for the sake of equal bits.
    `unfit`: what it will, or may, fail with at its first step; "": nothing that is known.
    """

    parameters: int
    parameter_bytes: int
    gradient_bytes: int
    buffer_bytes: int
    optimizer_bytes: int
    activation_bytes: int | None
    operations: float | None
    nondeterministic: tuple[str, ...] = ()
    pinned_bytes: int = 0
    unfit: str = ""

    def device_bytes(self, workers: int) -> int:
        """Memory of an accelerator that runs `workers` virtual workers.

        It holds one copy of the gradients, that of the sum, and each worker's buffers.
        """
        shared = self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes + (self.activation_bytes or 0)
        return shared + (workers + 1) * self.buffer_bytes

    def host_bytes(self, workers: int) -> int:
        """Memory of the host beside that: each worker's gradients wait there for their sum, in pinned memory.

        They do so in the first step, and where the device has no room for them; an only worker's wait for nothing.
        """
        return _copies(workers) * self.pinned_bytes

    def cpu_bytes(self, workers: int) -> int:
        """Memory of the host where the device is the CPU: everything."""
        return self.device_bytes(workers) + _copies(workers) * self.gradient_bytes


def _copies(workers: int) -> int:
    """How many copies of its gradients a job keeps beside their sum."""
    return workers if workers > 1 else 0


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
    spare_compiler(TorchDispatchMode.__subclasses__())
    with no_exit():
        model = model_without_memory(task.model)
    saved, operations, seen, unfit = _SavedBytes(), None, OperatorsSeen(), ""
    optimizers = [optimizer for optimizer, _ in rules_of(task, model).values()]
    try:
        with no_exit():
            operations = _run_once(task, model, layout, saved, seen) / task.batch_size
            for optimizer in optimizers:
                optimizer.step()
    except (Exception, SystemExit) as error:
        operations, unfit = None, _unfit(task, error)
    trained = [p for p in model.parameters() if p.requires_grad]
    return Size(
        parameters=sum(p.numel() for p in model.parameters()),
        parameter_bytes=_bytes(list(model.parameters())),
        gradient_bytes=_bytes(trained),
        pinned_bytes=_pinned(trained),
        buffer_bytes=_bytes(list(model.buffers())),
        optimizer_bytes=_bytes(
            [
                value
                for optimizer in optimizers
                for state in optimizer.state.values()
                for value in state.values()
                if isinstance(value, Tensor)
            ]
        ),
        activation_bytes=saved.total if operations is not None else None,
        operations=operations,
        nondeterministic=tuple(seen.names),
        unfit=unfit,
    )


def _run_once(task: Any, model: nn.Module, layout: SampleLayout, saved: _SavedBytes, seen: OperatorsSeen) -> float:
    """One forward and backward of a batch, on no data; returns its operations."""
    meta = torch.device("meta")
    batch = move(largest_collated(task) or made_up_batch(layout, task.batch_size, meta), meta)
    hooks = torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor)
    with FlopCounterMode(display=False) as counter, seen, hooks:
        parts = (loss for _, loss in task.step(model, batch)) if is_parted(task) else None
        for loss in parts or [loss_of(task, model, batch).mean]:
            backward(loss)
    return float(counter.get_total_flops())


def _unfit(task: Any, error: BaseException) -> str:
    """What a job will fail with that failed without data; "" where that may come of there being none."""
    if isinstance(error, UnfitLoss):
        return f"will fail at its first step: {error}"
    said = format_exception_only(error)[0].strip().split("\n")[0]
    of_no_data = isinstance(error, NotImplementedError) or "meta" in said.lower()
    if of_no_data or StepOptions.of(task).autocast:  # here it ran without
        return ""
    return f"may fail at its first step, as it does without data: {said}"


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _pinned(parameters: Sequence[Tensor]) -> int:
    """Bytes of pinned memory that one copy of the gradients takes.

    torch takes blocks of powers of two and keeps them, also those of the first step, whose buckets are whole.
    """
    order = range(len(parameters))[::-1]  # gradients are ready last to first, most often
    taken: Counter[int] = Counter()
    for layout in (Layout.first(parameters), Layout.rebuilt(parameters, order, [True] * len(parameters))):
        sizes = [_bytes([parameters[index] for index in bucket]) for bucket in layout.buckets]
        taken |= Counter(1 << (size - 1).bit_length() for size in sizes if size)
    return sum(size * count for size, count in taken.items())


def refused_on(device: str, job: str, size: Size) -> list[str]:
    """What will be refused of a job on a kind of device at its first step, a sentence each."""
    texts = [f"job {job} {size.unfit}"] if size.unfit else []
    if device.partition(":")[0] != "cpu" and size.nondeterministic:
        texts.append(
            f"job {job} uses {', '.join(size.nondeterministic)}: torch has no deterministic form of this on GPUs and "
            "will refuse it at the first step; replace it, or set resources.device to cpu"
        )
    return texts


def assumed_rate(size: Size, device: str) -> float:
    """Samples/s of one device of a kind, guessed from the operations of a sample."""
    speed = ASSUMED_OPERATIONS_PER_SECOND.get(device, ASSUMED_OF_ACCELERATORS)
    if size.operations:
        return speed / size.operations
    return ASSUMED_PARAMETERS_PER_SECOND / max(1, size.parameters)
