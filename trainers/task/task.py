"""What a user writes to have one network trained, and what stands in for the parts that were left out.

A task is any object with `model`, `optimizer` and `dataset`; no base class is needed. The functions of this module look
the optional parts up, so the rest of the package never asks whether a task has them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import default_collate

from trainers.repeatable.process_settings import settings_kept
from trainers.repeatable.random_state import RandomState, seeded
from trainers.task.batch_plan import BatchSchedule
from trainers.task.loss import (
    Loss,
    UnfitTask,
    Weight,
    check_alike,
    check_countable,
    cross_entropy_weight,
    given,
    loss_given,
)
from trainers.task.metrics import DefaultAccuracy, Metric, Misfit, as_metric

Batch = tuple[Any, Any]
"""(input, target): tensors whose first axis counts samples, or tuples, lists or mappings of such tensors."""

Sums = dict[str, Any]
"""Name of a metric -> (sum over samples, number of samples), or the state of one that the task has as an object."""

_METRICS = "{name: (sum over the samples, number of samples)}"


class Task(Protocol):
    """The required part of a task, beside optimizer(model) -> the optimizer over `model.parameters()`, in whose place a
    task with several has `optimizers` and `step`. Optional, with their defaults:

    loss(model, batch) -> scalar tensor, the mean over the batch, or (mean, what it was divided by) where that is not
    the number of samples (cross entropy of model(input) and target); loss_weight(batch) -> what `loss` divides by,
    where the batch alone tells it;
    scheduler(optimizer) -> learning-rate schedule that is stepped once a step, or None (None); schedule_each = "epoch"
    where it is stepped once an epoch ("step");
    metrics(model, batch) -> {name: (sum, count)}, or metrics = {name: a metric of (outputs, targets)} (accuracy);
    better = {name: "higher" or "lower"} of metrics that do not say it themselves (see `trainers.task.metrics`);
    batch_size = samples a step of one virtual worker (32); evaluation_batch_size = held-out samples that are evaluated
    together (batch_size); drop_last = whether each worker leaves the last batch of an epoch out where that has fewer
    samples, as DataLoader(drop_last=True) does (False); seed (0); order_seed = of the samples' order and of
    what the data sets draw as they are built (seed); name (the class's name);
    accumulate = parts of a batch (1); autocast = "bfloat16" (None); clip_norm, clip_value = limits of the summed
    gradients (None); before_step(model), called with the summed gradients (see `trainers.task.task_options`);
    after_step(model), called once after each update: averages of weights, momentum encoders; they may change
    parameters that require no gradient; scratch = names of attributes of modules that forward passes change and that
    nothing reads in a later step (see `trainers.repeatable.shared_state`);
    sample_weights(dataset) -> a weight for each training sample, by which they are drawn with replacement, as torch's
    WeightedRandomSampler does (each comes once);
    collate(samples) -> batch, of a list of samples as the data set gives them (torch's default_collate);
    step(model, batch), optimizers(model) and schedulers(optimizers), in place of loss, optimizer and scheduler (see
    `trainers.task.parts`);
    batch_schedule = which batch each epoch has (see `trainers.task.batch_plan`; None: `batch_size`, always);
    state() and load_state(state) -> what the task itself keeps from step to step (see `trainers.task.task_options`).
    """

    def model(self) -> nn.Module:
        """Build the network; the job's seed is set when this is called."""

    def dataset(self, train: bool) -> Any:
        """Give the map-style data set of (input, target); the held-out one (train False) may be None."""


def made_task(kind: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Make a task; what that draws, such as a split of its data, is the same in every process."""
    seed = getattr(kind, "order_seed", getattr(kind, "seed", 0))
    with seeded(seed if type(seed) is int else 0):
        return kind(**arguments)


def model_of(task: Task) -> nn.Module:
    """Return the task's network, built under the seed that is set. UnfitTask if it is none.

    What its code sets for the whole process is put back.
    """
    with settings_kept():
        made = task.model()
    model: nn.Module = given(name_of(task), "model()", made, nn.Module, "the network, a torch.nn.Module")
    return model


def loss_of(task: Task, model: nn.Module, batch: Batch) -> Loss:
    """Return the loss of one batch: its mean, which can be differentiated, and what that was divided by.

    UnfitTask if the task's loss says that it was divided by what is no number from 0 on.
    """
    return weighed_loss_of(task, model, batch, weight_of(task, batch))


def weighed_loss_of(task: Task, model: nn.Module, batch: Batch, weight: Weight | None) -> Loss:
    """Return the same where `weight_of` has been asked before the batch went to a device."""
    if not hasattr(task, "loss"):
        return Loss(functional.cross_entropy(model(batch[0]), batch[1]), weight)
    is_sum = bool(getattr(task, "loss_is_sum", False))
    return loss_given(name_of(task), task.loss(model, batch), weight, is_sum)


def weight_of(task: Task, batch: Batch) -> Weight | None:
    """Return what the mean loss of a batch is divided by, as far as the batch alone tells it; else None."""
    if hasattr(task, "loss_weight"):
        weight: Weight | None = task.loss_weight(batch)
        return weight
    return None if hasattr(task, "loss") or hasattr(task, "step") else cross_entropy_weight(batch[1])


def check_weighed(task: Task, loss: Loss, batch: Batch, why: str, shapes: set[tuple[int, ...]] | None = None) -> None:
    """Raise UnfitTask if a batch's loss says no weight, and a count of samples would be the wrong one.

    why: what makes weights matter. shapes: see `trainers.task.loss.check_alike`; None: one batch's parts are looked at.
    """
    if loss.weight is None:
        check_countable(name_of(task), batch[1], why, getattr(task, "ignored_target", None))
        if shapes is not None:
            check_alike(name_of(task), shapes, batch[1], why)


def metric_objects(task: Task) -> Mapping[str, Metric]:
    """Return the metrics that a task has as objects: those it names, or the accuracy of one that says nothing.

    A task with a step of its own has none but those it names.
    """
    if hasattr(task, "metric_objects"):
        return cast("Mapping[str, Metric]", task.metric_objects)
    said = getattr(task, "metrics", None)
    if isinstance(said, Mapping):
        return {name: as_metric(metric) for name, metric in said.items()}
    return {} if said is not None or hasattr(task, "step") else {"accuracy": DefaultAccuracy()}


def states_of(metrics: Mapping[str, Metric], task: Task, model: nn.Module, batch: Batch) -> Sums:
    """Return the states of metrics for a batch. UnfitTask names the one that cannot be measured of it."""
    usual = all(isinstance(metric, DefaultAccuracy) for metric in metrics.values())
    try:
        outputs = model(batch[0]) if metrics else None
    except Exception:
        if usual:  # nobody asked for it, and the task calls its network in a way of its own
            return dict.fromkeys(metrics)
        raise
    found = {}
    for name, metric in metrics.items():
        try:
            found[name] = metric.state(outputs, batch[1])
        except Misfit as error:
            raise UnfitTask(f"job {name_of(task)}: metric {name}: {error}") from error
    return found


def evaluation_sums(task: Task, model: nn.Module, batch: Batch, shapes: set[tuple[int, ...]] | None = None) -> Sums:
    """Return what a held-out batch says of the task's metrics and of `test_loss`. For eval mode without gradients.

    Both share forward passes. A task with a step of its own has `test_loss` where it has `loss`, and metrics where it
    has `metrics`. shapes: where the held-out set has several batches, those of the samples' targets so far. UnfitTask
    if metrics are neither sums nor states, or the loss of one of several batches counts what is not told.
    """
    with remembering(model):
        return _evaluation_sums(task, model, batch, shapes)


def _evaluation_sums(task: Task, model: nn.Module, batch: Batch, shapes: set[tuple[int, ...]] | None) -> Sums:
    sums: Sums = {}
    objects = metric_objects(task)
    if _measures_loss(task):
        loss = loss_of(task, model, batch)
        if shapes is not None:
            check_weighed(task, loss, batch, "several batches of held-out samples", shapes)
        sums["test_loss"] = loss.total(samples_in(batch))
    written: Any = task
    if not callable(getattr(task, "metrics", None)):
        return {**sums, **states_of(objects, task, model, batch)}
    metrics = given(name_of(task), "metrics(model, batch)", written.metrics(model, batch), Mapping, _METRICS)
    taken = next((name for name in metrics if name in sums or name == "loss"), None)
    if taken is not None:
        raise UnfitTask(
            f"job {name_of(task)}: metrics(model, batch) gives a {taken}, which is measured already; rename it"
        )
    for name, value in metrics.items():
        sums[name] = value if name in objects else _as_sum(task, name, value)
    return sums


def _as_sum(task: Task, name: str, value: Any) -> tuple[float, float]:
    try:
        total, number = value
        return float(total), float(number)
    except (TypeError, ValueError) as error:
        told = f"metrics(model, batch) gives {value!r:.80} as {name!r}"
        raise UnfitTask(f"job {name_of(task)}: {told}, and must give {_METRICS}") from error


def _measures_loss(task: Task) -> bool:
    return bool(getattr(task, "measures_loss", hasattr(task, "loss") or not hasattr(task, "step")))


def optimizer_of(task: Task, model: nn.Module) -> torch.optim.Optimizer:
    """Return the task's optimizer. UnfitTask if it is none, or needs several losses a step."""
    written: Any = task
    return held(task, written.optimizer(model))


def held(task: Task, optimizer: Any, call: str = "optimizer(model)") -> torch.optim.Optimizer:
    """Return an optimizer. UnfitTask if it is none, or needs several losses a step."""
    made: torch.optim.Optimizer = given(name_of(task), call, optimizer, torch.optim.Optimizer, "one of torch.optim")
    if isinstance(made, torch.optim.LBFGS):
        raise UnfitTask(
            f"job {name_of(task)}: LBFGS asks for the loss several times a step, and a step here has one; use another "
            "optimizer, such as Adam"
        )
    return made


def after_step(task: Task, model: nn.Module) -> None:
    """Let the task do what comes once after each update, if it wants that."""
    if hasattr(task, "after_step"):
        task.after_step(model)


def scratch_of(task: Task) -> tuple[str, ...]:
    """Return the names of attributes that forward passes may change, as the task says."""
    return tuple(getattr(task, "scratch", ()))


def code_of(task: Task) -> Mapping[str, object]:
    """Return what a person wrote of the task: the task itself, unless it says by `written()` what it is made of."""
    return task.written() if hasattr(task, "written") else {"task": task}


def scheduler_of(task: Task, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler | None:
    """Return the task's learning-rate schedule over `optimizer`, or None. UnfitTask if it needs a metric."""
    return held_schedule(task, task.scheduler(optimizer) if hasattr(task, "scheduler") else None)


def held_schedule(
    task: Task, schedule: torch.optim.lr_scheduler.LRScheduler | None
) -> torch.optim.lr_scheduler.LRScheduler | None:
    """Return a learning-rate schedule, or None. UnfitTask if it needs a metric."""
    if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise UnfitTask(
            f"job {name_of(task)}: ReduceLROnPlateau needs a metric at each step, and schedules are stepped without; "
            "use another schedule, such as CosineAnnealingLR"
        )
    return schedule


def collate_of(task: Task) -> Callable[[list[Any]], Batch]:
    """Return what makes a batch of a list of samples."""
    return getattr(task, "collate", None) or default_collate


def batch_size_of(task: Task) -> int:
    """Return how many samples one virtual worker takes a step."""
    return int(getattr(task, "batch_size", 32))


def drops_last(task: Task) -> bool:
    """Whether a virtual worker leaves its last batch of an epoch out where that has fewer samples."""
    return bool(getattr(task, "drop_last", False))


def evaluation_batch_of(task: Task, batch: int) -> int:
    """Return how many held-out samples are evaluated together: as the task says, or else so many."""
    return int(getattr(task, "evaluation_batch_size", None) or batch)


def steps_schedule_by_epoch(task: Task) -> bool:
    """Return whether the task's learning-rate schedules are stepped once an epoch. UnfitTask if it says neither."""
    each = getattr(task, "schedule_each", "step")
    if each not in ("step", "epoch"):
        raise UnfitTask(f"job {name_of(task)}: schedule_each is {each!r}; choose 'step' or 'epoch'")
    return bool(each == "epoch")


def batch_schedule_of(task: Task) -> BatchSchedule | None:
    """Return which batch each epoch has, where that changes; None where it never does."""
    found = getattr(task, "batch_schedule", None)
    return found if isinstance(found, BatchSchedule) else None


def seed_of(task: Task) -> int:
    """Return the job's seed."""
    return int(getattr(task, "seed", 0))


def order_seed_of(task: Task) -> int:
    """Return the seed of the samples' order, which members of a deep ensemble share: the job's, if it says no other."""
    return int(getattr(task, "order_seed", seed_of(task)))


def own_order_seed(task: Task) -> int | None:
    """Return the seed of the samples' order where it is not the job's, as checkpoints have it; else None."""
    return None if order_seed_of(task) == seed_of(task) else order_seed_of(task)


def name_of(task: Task) -> str:
    """Return what the job is called in messages and checkpoints."""
    return str(getattr(task, "name", type(task).__name__))


def samples_in(batch: Batch) -> int:
    """Return the number of samples of a batch: the length of its first target."""
    return _length(batch[1])


def _length(value: Any) -> int:
    if isinstance(value, Tensor) and value.dim():
        return value.shape[0]
    if isinstance(value, Mapping):
        return _length(next(iter(value.values())))
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], (Tensor, Mapping, tuple, list)):
        return _length(value[0])
    return len(cast(Sized, value))


def move(value: Any, device: torch.device) -> Any:
    """Return `value` with every tensor in its tuples, lists and mappings on `device`.

    Tensors of the host are on their way to a device when this returns, from pinned memory. That is a copy, which torch
    keeps until it has been read, so the tensor itself may change at once.
    """
    if isinstance(value, Tensor):
        if value.is_cpu and device.type == "cpu":
            return value
        is_sent = value.device.type == "cpu" and device.type not in ("cpu", "meta")
        plain = value.layout is torch.strided and not value.is_nested and not value.is_quantized
        return (value.pin_memory() if is_sent and plain else value).to(device, non_blocking=plain)
    if isinstance(value, (tuple, list)):
        return type(value)([move(item, device) for item in value])
    if isinstance(value, Mapping):
        return {key: move(item, device) for key, item in value.items()}
    return value


_KEPT = 4
"""The latest calls of which the outputs are kept, as a loss may call its network for several inputs; of kernels that
were compiled only the last one, as replayed graphs write over their outputs.
"""
_ENTRY = "_compiled_call_impl"
"""What `Module.__call__` calls, if it is there: hooks and compiled kernels lie behind it."""


@contextmanager
def remembering(model: nn.Module) -> Iterator[None]:
    """Let calls of `model` with the arguments of an earlier one give its output again, without a forward pass.

    The network stays what it is, for every attribute, method and isinstance. Arguments are the same if they are the
    same tensors and objects in the same places, by position or by name, and no tensor was written to since. What drew
    random numbers, as dropout does, is computed again.
    """
    kernels = getattr(model, _ENTRY)
    with called_through(model, _Remembered(model, kernels or model._call_impl, 1 if kernels else _KEPT)):
        yield


@contextmanager
def called_through(model: nn.Module, call: Callable[..., Any]) -> Iterator[None]:
    """Let `model(...)` be `call(...)`, whoever calls it."""
    own, before = model.__dict__, model.__dict__.get(_ENTRY)
    own[_ENTRY] = call
    try:
        yield
    finally:
        del own[_ENTRY]
        if before is not None:
            own[_ENTRY] = before


@dataclass(frozen=True)
class _Call:
    """A call and what it gave; holding both, their identities stay theirs."""

    arguments: tuple[Any, ...]
    state: tuple[Any, ...]
    output: Any
    versions: tuple[Any, ...]

    def answers(self, arguments: tuple[Any, ...], state: tuple[Any, ...]) -> bool:
        same = self.state == state and len(self.arguments) == len(arguments)
        same = same and all(map(_is_same, self.arguments, arguments))
        return same and self.versions == _versions((self.arguments, self.output))


class _Remembered:
    """Stands before a network's call."""

    def __init__(self, model: nn.Module, call: Callable[..., Any], kept: int) -> None:
        self._model, self._call = model, call
        self._calls: deque[_Call] = deque(maxlen=kept)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        model = self._model
        asked = tuple(_leaves((arguments, named)))
        state = (torch.is_grad_enabled(), *(module.training for module in model.modules()))
        for call in self._calls:
            if call.answers(asked, state):
                return call.output
        weight = next(model.parameters(), None)
        device = torch.device("cpu") if weight is None else weight.device
        before = RandomState.now(device)
        written = _versions(asked)
        output = self._call(*arguments, **named)
        if _versions(asked) == written and _is_equal(before, RandomState.now(device)):
            self._calls.append(_Call(asked, state, output, _versions((asked, output))))
        return output


def _leaves(value: Any) -> Iterator[Any]:
    """All that a tree holds, with marks of its form."""
    if isinstance(value, Mapping):
        yield type(value)
        for key, child in value.items():
            yield key
            yield from _leaves(child)
    elif isinstance(value, (tuple, list)):
        yield type(value)
        yield len(value)
        for child in value:
            yield from _leaves(child)
    else:
        yield value


def _is_same(one: Any, other: Any) -> bool:
    plain = (str, bytes, int, float, bool)
    return one is other or (type(one) is type(other) and isinstance(one, plain) and one == other)


def _versions(value: Any) -> tuple[Any, ...]:
    """How often each tensor was written to; None for those that do not count, as inference mode makes them."""
    tensors = (leaf for leaf in _leaves(value) if isinstance(leaf, Tensor))
    return tuple(None if tensor.is_inference() else tensor._version for tensor in tensors)


def _is_equal(one: RandomState, other: RandomState) -> bool:
    pairs = [(one.torch_cpu, other.torch_cpu), (one.torch_device, other.torch_device)]
    drawn = [a is not None and b is not None and not torch.equal(a, b) for a, b in pairs]
    numpy = one.numpy[1:] == other.numpy[1:] and bool((one.numpy[0] == other.numpy[0]).all())
    return not any(drawn) and numpy and one.python == other.python
