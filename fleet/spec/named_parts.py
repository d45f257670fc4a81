"""Optimizers, schedules and losses that a spec names: of torch, or ``module:Name``; and how they are made."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.nn import functional
from torch.optim import lr_scheduler

from fleet.spec.job import Job
from fleet.spec.optimizer import Optimizer
from fleet.spec.problem import nearest
from fleet.spec.references import ReferenceProblem, resolve
from trainers.task.loss import IGNORED, UnfitTask, Weight, check_additive, cross_entropy_weight, loss_given
from trainers.task.parts import JoinedOptimizer

_NEEDS_CLOSURE = frozenset({"LBFGS"})
_NEEDS_METRIC = frozenset({"ReduceLROnPlateau"})
_LOSS_WORDS = ("loss", "cross_entropy", "kl_div")


def named_optimizer(name: str) -> Callable[..., Any]:
    """The class in ``torch.optim``, or what ``module:Name`` names: called with (parameters, **arguments).

    Raises:
        ReferenceProblem: there is none, or it cannot be stepped as training does.
    """
    if name in _NEEDS_CLOSURE:
        rule = f"{name} evaluates the loss several times a step, which training does not do"
        raise ReferenceProblem(rule, "SGD", "choose another, such as SGD")
    return _looked_up(name, _classes(torch.optim, torch.optim.Optimizer, _NEEDS_CLOSURE), "an optimizer of torch.optim")


def schedule_of(name: str) -> Callable[..., Any]:
    """The class in ``torch.optim.lr_scheduler``, or what ``module:Name`` names: called with (optimizer, **arguments).

    Raises:
        ReferenceProblem: there is none, or it cannot be stepped as training does.
    """
    if name in _NEEDS_METRIC:
        rule = f"{name} wants a metric at each step; schedules are stepped without"
        raise ReferenceProblem(rule, "CosineAnnealingLR", "choose another, such as CosineAnnealingLR")
    return _looked_up(
        name, _classes(lr_scheduler, lr_scheduler.LRScheduler, _NEEDS_METRIC), "a schedule of torch.optim.lr_scheduler"
    )


def built_schedule(
    optimizer: torch.optim.Optimizer,
    schedule: Callable[..., Any] | None,
    arguments: Mapping[str, Any],
    warm_up: int,
    start_factor: float,
) -> Any:
    """The learning-rate schedule of an optimizer, after a warm-up of so many of its units; 0: it begins at once.

    Args:
        schedule: is called with (optimizer, **arguments); None: the rate stays as it is after the warm-up.
    """
    if not warm_up:
        return None if schedule is None else schedule(optimizer, **arguments)
    rising = lr_scheduler.LinearLR(optimizer, start_factor, 1.0, warm_up)
    if schedule is None:
        return rising
    return lr_scheduler.SequentialLR(optimizer, [rising, schedule(optimizer, **arguments)], [warm_up])


def named_loss(name: str) -> Callable[..., Any]:
    """The loss in ``torch.nn.functional``, or what ``module:Name`` names.

    Raises:
        ReferenceProblem: there is none.
    """
    return _looked_up(name, _losses(), "a loss of torch.nn.functional")


def _looked_up(name: str, known: dict[str, Any], what: str) -> Callable[..., Any]:
    if ":" in name:
        found = resolve(name)
        if not callable(found):
            raise ReferenceProblem(
                f"{name} is of type {type(found).__name__} and cannot be called", mend=f"name {what}"
            )
        return found  # type: ignore[no-any-return]
    if name not in known:
        raise ReferenceProblem(f"{name!r} is not {what}", nearest(name, known), "write one of these, or module:Name")
    return known[name]  # type: ignore[no-any-return]


def _classes(module: ModuleType, base: type, without: frozenset[str]) -> dict[str, Any]:
    """The public classes of a module that are made from `base`."""
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    wanted = {name: value for name, value in found.items() if inspect.isclass(value) and issubclass(value, base)}
    return {name: value for name, value in wanted.items() if value is not base and name not in without}


def _losses() -> dict[str, Any]:
    names = [name for name in dir(functional) if any(word in name for word in _LOSS_WORDS) and not name.startswith("_")]
    return {name: getattr(functional, name) for name in names if callable(getattr(functional, name))}


Makers = Mapping[str, Callable[..., Any]]
"""Name of an optimizer -> what makes it."""


def makers_of(asked: Optimizer) -> dict[str, Callable[..., Any]]:
    """Return what makes each optimizer that is named. ReferenceProblem if a name leads nowhere."""
    return {name: named_optimizer(name) for name in asked.names}


def built_optimizer(asked: Optimizer, makers: Makers, named: Sequence[tuple[str, nn.Parameter]]) -> optim.Optimizer:
    """Build the optimizer of a network with these parameters; several that are named become one.

    Raises:
        UnfitTask: some parameters are in no group, and there is no optimizer for these.
    """
    if not asked.groups:
        assert asked.name is not None
        made: optim.Optimizer = makers[asked.name]([parameter for _, parameter in named], **asked.arguments)
        return made
    parameters = dict(named)
    *members, rest = asked.members(list(parameters))
    if rest and asked.name is None:
        raise UnfitTask(f"no group of the optimizer has {shown_names(rest)}; {OTHERS}")
    own = [{"params": [parameters[name] for name in rest]}] if rest else []
    others = []
    for group, names in zip(asked.groups, members):
        chosen = {"params": [parameters[name] for name in names], **group.options}
        if names and group.name is None:
            own.append(chosen)
        elif names and group.name is not None:
            others.append(makers[group.name]([chosen], **group.arguments))
    if own:
        assert asked.name is not None
        others.insert(0, makers[asked.name](own, **asked.arguments))
    return others[0] if len(others) == 1 else JoinedOptimizer(others)


OTHERS = 'add a last group {match: ["*"], name: AdamW}, or a name beside the groups, for all others'


def shown_names(names: Sequence[str]) -> str:
    """Some names, and how many there are more."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


DEFAULT_LOSS = "cross_entropy"
_BROADCASTING = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})
_ENTROPIES = frozenset({"cross_entropy", "nll_loss"})
_BY_ELEMENT = _BROADCASTING | {
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "kl_div",
    "poisson_nll_loss",
    "soft_margin_loss",
    "hinge_embedding_loss",
}
_BY_SAMPLE = frozenset({"multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss"})
_CLASSES = {
    "MSELoss": "mse_loss",
    "L1Loss": "l1_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "HuberLoss": "huber_loss",
    "CrossEntropyLoss": "cross_entropy",
    "NLLLoss": "nll_loss",
    "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "KLDivLoss": "kl_div",
    "PoissonNLLLoss": "poisson_nll_loss",
    "SoftMarginLoss": "soft_margin_loss",
    "HingeEmbeddingLoss": "hinge_embedding_loss",
    "MultiMarginLoss": "multi_margin_loss",
    "MultiLabelMarginLoss": "multilabel_margin_loss",
    "MultiLabelSoftMarginLoss": "multilabel_soft_margin_loss",
}
"""torch's classes of losses, and the functions that they call."""
_TENSORS = frozenset({"weight", "pos_weight"})
_MOST_CLASSES = 64


class JobLoss:
    """The loss of a job, called with (outputs, targets).

    function: what is called, whose code a person may have written. is_sum: it adds up and divides by nothing.
    """

    def __init__(self, job: Job) -> None:
        """Look the loss up. ReferenceProblem if there is none."""
        self._job, self._name = job.name, job.loss.name if job.loss else DEFAULT_LOSS
        found = named_loss(self._name)
        self._arguments = loss_arguments(found, job.loss.arguments if job.loss else {})
        self._kind = _kind(found, self._name) if _is_torchs(found) else ""
        self._host_weights: Any = self._arguments.get("weight")  # stay there, whatever device the others go to
        self._is_made = inspect.isclass(found)
        self.function: Callable[..., Any] = found(**self._arguments) if self._is_made else found
        reduction = self._arguments.get("reduction", "mean")
        self.is_sum = bool(self._kind) and reduction == "sum"
        self._knows_weight = bool(self._kind) and reduction in ("mean", "batchmean") and self._divides_by_targets()

    def __call__(self, outputs: Any, targets: Any) -> Any:
        """Return the loss: a mean, or (mean, weight) as a person's function gives it. ValueError if shapes differ."""
        if self._kind in _BROADCASTING and outputs.shape != targets.shape:
            shapes = f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}"
            what = f"{self._name} of {shapes} would pair every output with every target"
            raise ValueError(f"{what}: make the shapes equal")
        if isinstance(outputs, Tensor):
            self._move(outputs.device)
        return self.function(outputs, targets) if self._is_made else self.function(outputs, targets, **self._arguments)

    def weight(self, targets: Any) -> Weight | None:
        """Return what the loss of a batch divides by; None where its targets do not tell."""
        if not self._knows_weight or not isinstance(targets, Tensor):
            return None
        if self._kind in _ENTROPIES:
            weights, ignored = self._arguments.get("weight"), self._arguments.get("ignore_index", IGNORED)
            if isinstance(weights, Tensor) and not targets.is_floating_point():
                weights = self._host_weights if targets.device.type == "cpu" else weights.to(targets.device)
            return cross_entropy_weight(targets, ignored, weights)
        by_sample = self._kind in _BY_SAMPLE or self._arguments.get("reduction") == "batchmean"
        return len(targets) if by_sample else targets.numel()

    @property
    def is_custom(self) -> bool:
        """Whether it is a person's, so that nobody knows what it divides by."""
        return not self._kind

    def try_parts(self, outputs: Any, targets: Any, why: str) -> None:
        """Hold a loss that says no weight to be a mean over samples; call it where no network trains, as it may count.

        Targets of classes are tried with each class, as one batch may have one alone. A loss that gives another value
        each time, or takes no such batch, is left as it is. UnfitTask if it is none; why: what makes that matter.
        """
        if self.is_custom and isinstance(outputs, Tensor) and isinstance(targets, Tensor) and len(targets):
            with torch.no_grad():
                for pair in _tried(outputs.detach(), targets):
                    self._try(*pair, why)

    def _try(self, outputs: Tensor, targets: Tensor, why: str) -> None:
        try:
            function = copy.deepcopy(self.function)
            whole, weight = _number(self._job, function(outputs, targets, **self._given))
            if weight or _number(self._job, function(outputs, targets, **self._given))[0] != whole:
                return
            rows = [
                _number(self._job, function(outputs[i : i + 1], targets[i : i + 1], **self._given))[0]
                for i in range(len(targets))
            ]
        except Exception:  # a person's loss may refuse such a batch; what it does with real ones is told by the run
            return
        check_additive(self._job, whole, [(loss, 1) for loss in rows], why)

    @property
    def _given(self) -> Mapping[str, Any]:
        return {} if self._is_made else self._arguments

    def _divides_by_targets(self) -> bool:
        return (
            self._kind in _ENTROPIES
            or self._kind in _BY_SAMPLE
            or "weight" not in self._arguments
            or (self._kind not in _BROADCASTING)
        )

    def _move(self, device: torch.device) -> None:
        """Let the loss's own tensors lie where the network's outputs do."""
        if isinstance(self.function, nn.Module):
            state = [*self.function.parameters(), *self.function.buffers()]
            if any(tensor.device != device for tensor in state):
                self.function.to(device)
        for key, value in self._arguments.items():
            if isinstance(value, Tensor) and value.device != device:
                self._arguments[key] = value.to(device)


def _kind(found: Any, name: str) -> str:
    """The function of torch's that a loss is, as far as it is known what it divides by; else ""."""
    own = name.rpartition(":")[2].rpartition(".")[2]
    kind = _CLASSES.get(own, "") if inspect.isclass(found) else own
    return kind if kind in _ENTROPIES | _BY_ELEMENT | _BY_SAMPLE else ""


def loss_arguments(found: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a loss: of torch's own, lists of weights are tensors."""
    return {key: _tensor(key, value) for key, value in arguments.items()} if _is_torchs(found) else dict(arguments)


def _is_torchs(found: Any) -> bool:
    return str(getattr(found, "__module__", "")).partition(".")[0] == "torch"


def _tensor(key: str, value: Any) -> Any:
    return (
        torch.tensor(value, dtype=torch.get_default_dtype()) if key in _TENSORS and isinstance(value, list) else value
    )


def _number(job: str, given: Any) -> tuple[float, bool]:
    """A loss as a number, and whether it says its weight."""
    loss = loss_given(job, given, None, False)
    return loss.mean.item(), loss.weight is not None


def _tried(outputs: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Batches to try a loss with: the first samples of a real one, and, of classes, one in which each comes."""
    first = min(len(targets), _MOST_CLASSES)
    found = [(outputs[:first], targets[:first])]
    if not targets.is_floating_point() and outputs.dim() == targets.dim() + 1 and outputs.shape[1] > 1:
        classes = min(outputs.shape[1], _MOST_CLASSES)
        turns = torch.arange(classes, device=targets.device)
        rows = outputs[:1].expand(classes, *outputs.shape[1:])
        steps = torch.linspace(0, 1, outputs.shape[1], device=outputs.device, dtype=outputs.dtype)
        rows = rows * 0.5 + steps.reshape(1, -1, *(1,) * (outputs.dim() - 2))
        each = turns.reshape(-1, *(1,) * (targets.dim() - 1)).expand(classes, *targets.shape[1:])
        found.append((rows.contiguous(), each.to(targets.dtype).contiguous()))
    return found
