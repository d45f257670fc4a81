"""Forward and backward passes of a virtual worker's batch, in one part or several, perhaps by kernels compiled for it.

The gradients of the parts add up to the whole batch's. Where the targets tell beforehand what each part's mean is
divided by, a part's loss is multiplied by its share of that. Else the gradients of mean times weight add up; before the
last part's backward pass, which completes them, what is there is divided by the sum of all weights. A part in which
nothing counts adds nothing, whatever its mean is.

By itself torch.compile makes kernels for any shape once it has seen a second one, gives up after eight, and lets GPUs
try which kernel is the fastest: what a batch is computed with would hang on the batches before it, and would be another
after a move or a restart. `compile_model` makes kernels a function of the shapes and of the machine. DDP's ranks that
compile have these bits where they do as this module does.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from trainers.step.virtual_worker import VirtualWorker
from trainers.task import task as tasks
from trainers.task.loss import Loss, UnfitTask, Weight, nothing_of
from trainers.task.parts import Phase, phases_of
from trainers.task.task import Batch, Task
from trainers.task.task_options import GRAPHS, NOTHING, StepOptions


class Training(Protocol):
    """What a computation may ask of the `Trainer` that it computes for."""

    task: Task
    model: nn.Module
    device: torch.device
    epoch: int
    accumulating: bool
    weights: list[Weight | None]

    @property
    def options(self) -> StepOptions:
        """What the task asks of the step."""


class Compute(Protocol):
    """What fills the parameters' gradients for one batch of one virtual worker."""

    def gradients(self, trainer: Training, worker: VirtualWorker, batch: Batch) -> BatchLoss | float:
        """Leave gradients in `trainer.model`'s parameters (missing ones count as zero); return the loss, or the mean.

        The trainer takes each as soon as it is whole: while `trainer.accumulating` is False, from inside `backward`.
        """


class ForwardBackward:
    """The real computation."""

    def gradients(self, trainer: Training, worker: VirtualWorker, batch: Batch) -> BatchLoss:
        """Run forward and backward, part by part; return the loss."""
        options = trainer.options
        if options.accumulate == 1:
            with options.precision(trainer.device):
                loss = tasks.weighed_loss_of(trainer.task, trainer.model, batch, trainer.weights[0])
            return leave_whole(batch, loss, backward, trainer.model.parameters)

        def forward(part: Batch, weight: Weight | None) -> Loss:
            with options.precision(trainer.device):
                return tasks.weighed_loss_of(trainer.task, trainer.model, part, weight)

        def taking(is_last: bool) -> AbstractContextManager[None]:
            trainer.accumulating = not is_last
            return NOTHING

        steps = PartSteps(trainer.task, forward, backward, taking, trainer.model.parameters)
        return steps.run(batch, options.parts(batch), trainer.weights)

    def phases(self, trainer: Training, batch: Batch) -> Iterator[Phase]:
        """Return the step that the task itself has written; only such a task has phases."""
        return phases_of(trainer.task, trainer.model, batch)


def backward(loss: Any, **options: Any) -> None:
    """Run the backward pass of a loss, with torch's `options`. UnfitLoss says what is wrong with one that has none."""
    try:
        loss.backward(**options)
    except Exception as error:
        if rule := _misfit(loss):
            raise UnfitLoss(
                f"{rule}; return the mean over the batch, as functional.cross_entropy does, or (mean, what "
                "it was divided by)"
            ) from error
        raise


class UnfitLoss(TypeError):
    """A task gave a loss that has no gradients."""


def _misfit(loss: Any) -> str:
    if not isinstance(loss, Tensor):
        return f"the loss is of type {type(loss).__name__}, and must be a tensor"
    if loss.numel() != 1:
        return f"the loss is a tensor of shape {tuple(loss.shape)}, and must be a single number"
    return "" if loss.requires_grad else "the loss does not depend on any weights that are trained, or was detached"


class BatchLoss(NamedTuple):
    """The loss of a batch.

    mean: of all that counts. weight: what it was divided by; a tensor where a device has it, which nobody waits for.
    """

    mean: Tensor
    weight: Weight


def known_weights(task: Task, batch: Batch, options: StepOptions) -> list[Weight | None]:
    """Return what the means of a batch's parts are divided by, as far as their targets tell it.

    To be asked before the batch goes to a device. Of parts that are there already, the device is waited for; that of a
    whole batch stays there.
    """
    if options.accumulate == 1:
        weight = tasks.weight_of(task, batch)
        return [float(weight) if isinstance(weight, Tensor) and weight.device.type == "cpu" else weight]
    found = [tasks.weight_of(task, part) for part, _ in options.parts(batch)]
    return [None if weight is None else float(weight) for weight in found]


class PartSteps:
    """The passes of one batch.

    forward: gives the loss of a part whose weight is known or not. backward: leaves a scalar's gradients. taking: each
    part's passes run inside it, with whether it is the last one. parameters: gives those whose gradients they are.
    """

    def __init__(
        self,
        task: Task,
        forward: Callable[[Batch, Weight | None], Loss],
        backward: Callable[[Any], None],
        taking: Callable[[bool], AbstractContextManager[Any]],
        parameters: Callable[[], Iterable[nn.Parameter]],
    ) -> None:
        self._task, self._forward, self._backward = task, forward, backward
        self._taking, self._parameters = taking, parameters

    def run(self, batch: Batch, parts: Sequence[tuple[Batch, float]], weights: Sequence[Weight | None]) -> BatchLoss:
        """Leave the batch's gradients; return its loss.

        parts: as `trainers.task.task_options.StepOptions.parts` gives them. weights: see `known_weights`. UnfitTask if
        the loss does not say what it was divided by, and samples cannot be counted instead.
        """
        if len(parts) == 1:
            with self._taking(True):
                return leave_whole(batch, self._forward(batch, weights[0]), self._backward, self._parameters)
        adding: _Shares | _Sums | None = None
        for place, (part, _) in enumerate(parts):
            with self._taking(place == len(parts) - 1):
                loss = self._forward(part, weights[place])
                adding = adding or self._adding(batch, parts, loss, weights)
                _leave(*adding.next(loss, place), self._backward, self._parameters)
        assert adding is not None
        return adding.loss

    def _adding(
        self, batch: Batch, parts: Sequence[tuple[Batch, float]], first: Loss, known: Sequence[Weight | None]
    ) -> _Shares | _Sums:
        """Return how the parts' losses are added up, by what that of the first one says."""
        samples = tasks.samples_in(batch)
        if first.is_sum:
            return _Shares([1.0] * len(parts), samples, samples)
        if first.weight is None:
            tasks.check_weighed(self._task, first, batch, f"accumulate: {len(parts)}")
            return _Shares([divisor for _, divisor in parts], samples)
        weights = [float(weight) for weight in known if weight is not None]
        if len(weights) < len(parts):
            return _Sums(tasks.name_of(self._task), len(parts), list(self._parameters()))
        whole = sum(weights)
        return _Shares([whole / weight if weight else math.inf for weight in weights], whole)


def leave_whole(
    batch: Batch, loss: Loss, backward: Callable[[Any], None], parameters: Callable[[], Iterable[nn.Parameter]]
) -> BatchLoss:
    """Leave the gradients of a batch that is one part; return its loss."""
    mean, weight = loss.mean, loss.weight
    if loss.is_sum or weight is None:
        samples = tasks.samples_in(batch)
        backward(mean)
        return BatchLoss(mean.detach() / samples if loss.is_sum else mean.detach(), samples)
    _leave(mean, isinstance(weight, Tensor) or weight > 0, backward, parameters)
    return BatchLoss(mean.detach(), weight)


def _leave(
    term: Any, counts: bool, backward: Callable[[Any], None], parameters: Callable[[], Iterable[nn.Parameter]]
) -> None:
    """Leave a part's gradients; zeros where nothing counts, as others may wait for them."""
    if counts:
        backward(term)
        return
    with nothing_of(parameters()):
        backward(term)


class _Shares:
    """Parts whose share of the whole is known: each loss is divided by whole / part.

    divisors: infinite where nothing counts. weight: of the whole. samples: what a sum is told a mean of.
    """

    def __init__(self, divisors: Sequence[float], weight: float, samples: int = 1) -> None:
        self._divisors, self._weight, self._samples = divisors, weight, samples
        self._terms: list[Tensor] = []

    def next(self, loss: Loss, place: int) -> tuple[Tensor, bool]:
        """Return what the backward pass of the part at a place begins with, and whether anything counts there."""
        divisor = self._divisors[place]
        counts = divisor < math.inf
        term = loss.mean / divisor
        self._terms.append(term.detach() if counts else torch.zeros_like(term))
        return term, counts

    @property
    def loss(self) -> BatchLoss:
        """The whole batch's."""
        mean = torch.stack(self._terms).sum()
        return BatchLoss(mean if self._samples == 1 else mean / self._samples, self._weight)


class _Sums:
    """Parts of which each loss alone tells its weight."""

    def __init__(self, job: str, parts: int, parameters: Sequence[nn.Parameter]) -> None:
        self._job, self._parts, self._parameters = job, parts, parameters
        self._terms: list[Tensor] = []
        self._whole = 0.0

    def next(self, loss: Loss, place: int) -> tuple[Tensor, bool]:
        """Return what the backward pass of the part at a place begins with, and whether anything counts there.

        Before the last one, divide the gradients that are there.
        """
        if loss.weight is None:
            raise UnfitTask(
                f"job {self._job}: the loss gives (mean, weight) for one part of a batch, and a mean alone for "
                "another; let it give both always"
            )
        weight = float(loss.weight)
        self._whole += weight
        term = loss.mean * weight
        self._terms.append(term.detach() if weight else torch.zeros_like(term))
        if place < self._parts - 1 or not self._whole:
            return term, weight > 0
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if gradients:
            torch._foreach_div_(gradients, self._whole)
        return term / self._whole, weight > 0

    @property
    def loss(self) -> BatchLoss:
        """The whole batch's."""
        total = torch.stack(self._terms).sum()
        return BatchLoss(total / self._whole if self._whole else total, self._whole)


_MOST_SHAPES = 1024
"""Shapes of batches and sizes of networks for which the kernels of one class are kept; one more is an error."""
_COMPILER_SECONDS = 60.0
"""How long a compiler may take to say its version."""


class CannotCompile(RuntimeError):
    """There is nothing that could make kernels for this device, or they would not keep what a level promises."""


def compile_model(
    job: str, model: nn.Module, how: bool | str, mixed_kinds: bool, device: torch.device
) -> dict[str, str]:
    """Let each call of the model run kernels made for its shapes, at the first call with them. Nothing if `how` is off.

    how: see `trainers.task.task_options.StepOptions.compile`. mixed_kinds: whether the job's bits are to be those of
    other kinds of devices, too (D2). Returns what the job's pins have besides those of the process, which it sets: the
    compiler. CannotCompile.
    """
    if not how:
        return {}
    if mixed_kinds:
        raise CannotCompile(
            f"job {job} is to be compiled, and D2 to give the same bits on devices of different kinds; torch.compile "
            "makes its kernels for the device at hand. Choose D1, or leave `compile` out"
        )
    try:
        compiler = _of_processors() if device.type == "cpu" else _of_accelerators(device.type)
    except CannotCompile as error:
        raise CannotCompile(f"job {job} is to be compiled, but {error}, or leave `compile` out") from None
    hold_compiler_still()
    model.compile(dynamic=False, options={"triton.cudagraphs": how == GRAPHS})
    return {"compiler": compiler}


def hold_compiler_still() -> None:
    """Set this process's compiler: no trials of kernels, no kernels for many shapes, no giving up without a word."""
    import torch._dynamo
    import torch._inductor.config

    torch._inductor.config.deterministic = True
    torch._inductor.config.compile_threads = 1  # no pool of processes beside each trainer
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = _MOST_SHAPES
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    torch._dynamo.config.optimize_ddp = False  # DDP's ranks would cut the model at its buckets


def forget_graphs() -> None:
    """Let go of the graphs of this process's devices, and of the memory that they keep; kernels stay on the disk."""
    if "torch._inductor.cudagraph_trees" in sys.modules:
        import torch._dynamo

        torch._dynamo.reset()


def _of_processors() -> str:
    from torch._inductor import cpp_builder, exc

    try:
        compiler = cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        what = "there is no C++ compiler here: install g++ or clang++, name one in CXX"
        raise CannotCompile(what) from None
    told = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=_COMPILER_SECONDS)
    return told.stdout.partition("\n")[0]


def _of_accelerators(kind: str) -> str:
    from torch.utils._triton import has_triton

    if not has_triton():
        raise CannotCompile(f"torch has no Triton for devices of the kind {kind}: install it")
    return f"Triton {version('triton')}"
