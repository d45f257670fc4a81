"""What a job needs, found without training it: parameters, memory and operations, on torch's meta device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from traceback import format_exception_only
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from fleet.profiling.measure import largest_collated, made_up_batch
from preprocess import SampleLayout
from trainers.reduce.buckets import Layout
from trainers.repeatable.process_settings import model_without_memory, no_exit, spare_compiler
from trainers.repeatable.scan import OperatorsSeen
from trainers.step.compute import UnfitLoss, backward
from trainers.task.parts import is_parted, rules_of
from trainers.task.task import loss_of, move
from trainers.task.task_options import StepOptions

# What one device is taken to do where nothing was measured; only ratios between jobs are worth something then.
ASSUMED_OPERATIONS_PER_SECOND = {"cpu": 2e10}
ASSUMED_OF_ACCELERATORS = 2e13
ASSUMED_PARAMETERS_PER_SECOND = 1e9  # for models that cannot be counted
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


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


@dataclass(frozen=True)
class _Operator:
    """What an operator did with arguments of some shapes: operations, refusals on GPUs, and what it gave.

    Attributes:
        results: size, strides and dtype of each; None where they were no fresh tensors.
        is_one: it gave a tensor, not several.
        gives_first: it changed nothing but the numbers of its first argument, and gave that. What does neither, such as
            a view, has to run again.
    """

    operations: int
    names: tuple[str, ...]
    results: tuple[tuple[Any, ...] | None, ...] | None
    is_one: bool
    gives_first: bool


class KnownOperators:
    """Operators of torch by the shapes of their arguments, on which alone it depends what they give without data.

    Deep networks repeat their blocks, and torch takes a millisecond for many an operator on the meta device.
    """

    def __init__(self) -> None:
        self.found: dict[Any, _Operator] = {}


class _Counted(TorchDispatchMode):
    """Counts operations and notes operators, forward and backward; runs few that are known."""

    def __init__(self, known: KnownOperators) -> None:
        super().__init__()
        self._known = known.found
        self.operations, self.names = 0, dict[str, None]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        told = _described((args, kwargs)) if getattr(func, "namespace", "") == "aten" else None
        key = None if told is None else (func, told)
        found = None if key is None else self._known.get(key)
        if found is None:
            with FlopCounterMode(display=False) as counter, OperatorsSeen() as seen:
                result = func(*args, **(kwargs or {}))
            forms = None if key is None else _forms(func, (args, kwargs), result)
            gives_first = told is not None and _gives_first(func, args, result) and told == _described((args, kwargs))
            operations, names = counter.get_total_flops(), tuple(seen.names)
            found = _Operator(operations, names, forms, isinstance(result, Tensor), gives_first)
            if key is not None:
                self._known[key] = found
        elif found.gives_first:
            result = args[0]
        elif found.results is None:
            result = func(*args, **(kwargs or {}))
        else:
            made = [None if form is None else _made(*form) for form in found.results]
            result = made[0] if found.is_one else tuple(made)
        self.operations += found.operations
        self.names.update(dict.fromkeys(found.names))
        return result


def _described(value: Any) -> Any:
    """What an operator's outcome depends on, hashable; None: on more than is told here."""
    if isinstance(value, Tensor):
        return _form(value) if _is_plain(value) else None
    if isinstance(value, (list, tuple, dict)):
        told = tuple(map(_described, value.items() if isinstance(value, dict) else value))
        return None if None in told else (type(value), told)
    return (type(value), value) if isinstance(value, _PLAIN) else None


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, nn.Parameter) and tensor.is_meta and tensor.layout == torch.strided


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype


def _made(size: Any, stride: Any, dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="meta")


def _forms(func: Any, given: Any, result: Any) -> tuple[Any, ...] | None:
    """The forms by which an operator's results can be made again; None: they are not fresh tensors."""
    results = (result,) if isinstance(result, Tensor) else result
    if not isinstance(results, tuple) or any(argument.alias_info is not None for argument in func._schema.arguments):
        return None
    storages = {each.untyped_storage()._cdata for each in tree_leaves(given) if isinstance(each, Tensor)}
    for tensor in (each for each in results if each is not None):
        if not isinstance(tensor, Tensor) or not _is_plain(tensor) or tensor.storage_offset():
            return None
        storage = tensor.untyped_storage()
        if storage._cdata in storages or storage.nbytes() != _made(*_form(tensor)).untyped_storage().nbytes():
            return None
        storages.add(storage._cdata)
    return tuple(None if tensor is None else _form(tensor) for tensor in results)


def _gives_first(func: Any, args: Any, result: Any) -> bool:
    """Whether an operator writes to its first argument alone, and gives that."""
    first, *others = (argument.alias_info for argument in func._schema.arguments)
    return first is not None and first.is_write and not any(others) and result is args[0]


def size_of(task: Any, layout: SampleLayout, known: KnownOperators | None = None) -> Size:
    """Size the job of `task`, whose samples look like `layout`.

    Args:
        known: operators that other jobs have run.
    """
    spare_compiler(TorchDispatchMode.__subclasses__())
    with no_exit():
        model = model_without_memory(task.model)
    saved, operations, unfit, counted = _SavedBytes(), None, "", _Counted(known or KnownOperators())
    optimizers = [optimizer for optimizer, _ in rules_of(task, model).values()]
    try:
        with no_exit():
            operations = _run_once(task, model, layout, saved, counted) / task.batch_size
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
        nondeterministic=tuple(counted.names),
        unfit=unfit,
    )


def _run_once(task: Any, model: nn.Module, layout: SampleLayout, saved: _SavedBytes, counted: _Counted) -> float:
    """One forward and backward of a batch, on no data; returns its operations."""
    meta = torch.device("meta")
    batch = move(largest_collated(task) or made_up_batch(layout, task.batch_size, meta), meta)
    hooks = torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor)
    with counted, hooks:
        parts = (loss for _, loss in task.step(model, batch)) if is_parted(task) else None
        for loss in parts or [loss_of(task, model, batch).mean]:
            backward(loss)
    return float(counted.operations)


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


_SIZED = (8, 16)  # samples; some networks cannot train on one


@dataclass(frozen=True)
class SizeByBatch:
    """A job's needs by the samples of a virtual worker.

    Attributes:
        size: with `batch` samples.
        sample_bytes: what each sample more takes; None where the model cannot be run on the meta device.
    """

    size: Size
    batch: int
    sample_bytes: float | None

    def at(self, batch: int) -> Size:
        """The needs with so many samples."""
        if self.sample_bytes is None or self.size.activation_bytes is None:
            return self.size
        kept = self.size.activation_bytes + self.sample_bytes * (batch - self.batch)
        return replace(self.size, activation_bytes=max(0, round(kept)))


def size_by_batch(task_of: Callable[[int], Any], layout: SampleLayout) -> SizeByBatch:
    """Size a job whose samples look like `layout`.

    Args:
        task_of: its task with so many samples of a virtual worker.
    """
    few, more = (size_of(task_of(batch), layout) for batch in _SIZED)
    least, most = few.activation_bytes, more.activation_bytes
    each = None if least is None or most is None else (most - least) / (_SIZED[1] - _SIZED[0])
    return SizeByBatch(few, _SIZED[0], each)


def guessed_rate(size: Size, others: Iterable[tuple[Size, float]], device: str) -> float:
    """Samples/s on one device: it works on this job as fast as on the others, in the median.

    A job whose operations cannot be counted trains as many samples/s as they do.

    Args:
        size: the job's.
        others: the sizes of jobs that were measured on such a device, and their samples/s on one.
        device: its kind, by which it is guessed how fast it works while nobody has been measured.
    """
    known = [(other.operations or 0.0, rate) for other, rate in others]
    speeds = [operations * rate for operations, rate in known if operations]
    if size.operations and speeds:
        return median(speeds) / size.operations
    return median(rate for _, rate in known) if known else assumed_rate(size, device)
