"""Metrics of held-out samples: what each batch says of one is kept apart, and the whole set decides its value.

A batch gives a state, a plain tree. The states of all batches are put together in the order of the batches, whoever
evaluated them, and the value is worked out once: so neither the number of trainers nor, but for rounding, the size of a
batch changes it. Metrics see one flat form of outputs and targets (class scores, one logit, several labels, or values)
without the targets that the loss ignores: so they do not depend on how far sequences are padded, either.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from trainers.state.history import Direction
from trainers.state.tree import on_host
from trainers.task.loss import IGNORED

Kind = Literal["multiclass", "binary", "multilabel"]
KINDS: tuple[Kind, ...] = ("multiclass", "binary", "multilabel")


class Misfit(ValueError):
    """A metric cannot be measured of these outputs and targets; the text says why, and the mend."""


@dataclass(frozen=True)
class Form:
    """How a job's outputs and targets are read.

    kind: of the classification; None: as their shapes say.
    ignored: classes of this number do not count, NaN among them; None: all count.
    padding: targets that are values do not count where they are this; None: all count.
    probabilities: whether outputs are probabilities already, and not logits.
    class_axis: of class scores.
    """

    kind: Kind | None = None
    ignored: float | None = IGNORED
    padding: float | None = None
    probabilities: bool = False
    class_axis: int = 1

    def with_kind(self, kind: Kind | None) -> Form:
        """Return the form with a kind that somebody says."""
        return self if kind is None else replace(self, kind=kind)


@dataclass(frozen=True)
class Classes:
    """Targets that count, with their scores.

    scores: (targets, classes) of several classes, (targets,) of one logit, (places, labels) of several labels.
    targets: (targets,) int64; of several labels (places, labels), where IGNORED does not count.
    """

    kind: Kind
    scores: Tensor
    targets: Tensor
    logits: bool

    @property
    def found(self) -> Tensor:
        """The classes that the scores say; of one logit and of labels 0 or 1."""
        if self.kind == "multiclass":
            return self.scores.argmax(dim=1)
        return (self.scores > (0.0 if self.logits else 0.5)).long()

    @property
    def probabilities(self) -> Tensor:
        """The scores as probabilities, float64: those of other samples do not change them."""
        scores = self.scores.double()
        if not self.logits:
            return scores
        return scores.softmax(dim=1) if self.kind == "multiclass" else scores.sigmoid()


def classes_of(form: Form, outputs: Any, targets: Any) -> Classes:
    """Read a batch of a classification. Misfit."""
    outputs, targets = _tensor(outputs, "outputs"), _tensor(targets, "targets")
    if not outputs.is_floating_point():
        what, mend = "classes are read from scores, and these are whole numbers", "let the network give its scores"
        raise _misfit(outputs, targets, what, mend)
    kind = form.kind or _kind(form, outputs, targets)
    if kind == "multiclass":
        return _multiclass(form, outputs, targets)
    if kind == "multilabel" or (outputs.dim() == 2 and outputs.shape[1] > 1 and outputs.shape == targets.shape):
        return _multilabel(form, outputs, targets)
    return _binary(form, outputs, targets)


def values_of(form: Form, outputs: Any, targets: Any) -> tuple[Tensor, Tensor]:
    """Read a batch of numbers: (outputs, targets), flat, float64, of the elements that count. Misfit."""
    outputs, targets = _tensor(outputs, "outputs"), _tensor(targets, "targets")
    if len(outputs.shape[:1]) == 0 or outputs.shape[:1] != targets.shape[:1] or outputs.numel() != targets.numel():
        raise _misfit(outputs, targets, "each output needs a target", "give as many of both")
    found, wanted = outputs.reshape(-1), targets.reshape(-1)
    counts = _counts(form.padding, wanted)
    return found[counts].double(), wanted[counts].double()


def _kind(form: Form, outputs: Tensor, targets: Tensor) -> Kind:
    """The kind that the shapes say."""
    if outputs.dim() > 1 and outputs.shape[form.class_axis] > 1:
        if _is_one_less(outputs, targets, form.class_axis):
            return "multiclass"
        if outputs.shape == targets.shape:
            what = "targets as large as the outputs may be one class of several, or several labels"
            mend = "say which: {name: ..., of: ..., arguments: {task: multiclass}}, or multilabel"
            raise _misfit(outputs, targets, what, mend)
    elif _bare(outputs) == _bare(targets):
        return "binary"
    raise _unread(form, outputs, targets)


def _multiclass(form: Form, outputs: Tensor, targets: Tensor) -> Classes:
    axis = form.class_axis
    if outputs.dim() < 2 or outputs.shape[axis] < 2:
        what = "several classes need a score each, along axis 1"
        raise _misfit(outputs, targets, what, "give the network as many outputs as there are classes")
    if outputs.shape == targets.shape:
        targets = targets.argmax(dim=axis)
    elif not _is_one_less(outputs, targets, axis):
        raise _unread(form, outputs, targets)
    scores, wanted = outputs.movedim(axis, -1).reshape(-1, outputs.shape[axis]), targets.reshape(-1)
    counts = _counts(form.ignored, wanted)
    scores, wanted = scores[counts], wanted[counts]
    classes = _whole(wanted, scores.shape[1], outputs, targets)
    return Classes("multiclass", scores, classes, not form.probabilities)


def _binary(form: Form, outputs: Tensor, targets: Tensor) -> Classes:
    if outputs.dim() == 2 and outputs.shape[1] == 2 and form.kind == "binary":  # two classes, of which 1 is sought
        both = _multiclass(form, outputs, targets)
        return Classes("binary", both.probabilities[:, 1], both.targets, False)
    if _bare(outputs) != _bare(targets):
        raise _unread(form, outputs, targets)
    scores, wanted = outputs.reshape(-1), targets.reshape(-1)
    counts = _counts(form.ignored, wanted)
    classes = _whole(wanted[counts], 2, outputs, targets)
    return Classes("binary", scores[counts], classes, not form.probabilities)


def _multilabel(form: Form, outputs: Tensor, targets: Tensor) -> Classes:
    if outputs.dim() < 2 or outputs.shape != targets.shape:
        raise _misfit(outputs, targets, "several labels need a target each", "give targets of the outputs' shape")
    labels = outputs.shape[1]
    scores, wanted = (each.movedim(1, -1).reshape(-1, labels) for each in (outputs, targets))
    counts = _counts(form.ignored, wanted)
    _whole(wanted[counts], 2, outputs, targets)
    return Classes("multilabel", scores, torch.where(counts, wanted, IGNORED).long(), not form.probabilities)


def _counts(ignored: float | None, targets: Tensor) -> Tensor:
    """Which targets count."""
    if ignored is None:
        return torch.ones_like(targets, dtype=torch.bool)
    return ~targets.isnan() if math.isnan(ignored) else targets != ignored


def _whole(targets: Tensor, classes: int, outputs: Tensor, given: Tensor) -> Tensor:
    """The targets as numbers of classes. Misfit if one is none."""
    wrong = targets[(targets != targets.floor()) | (targets < 0) | (targets >= classes)]
    if wrong.numel():
        what = f"a target is {wrong[0].item():g}, and {classes} classes are numbered from 0 to {classes - 1}"
        mend = "give such numbers, or name a metric of values, such as mean_absolute_error"
        raise _misfit(outputs, given, what, mend)
    return targets.long()


def _is_one_less(outputs: Tensor, targets: Tensor, axis: int) -> bool:
    """Whether the targets have the outputs' shape but for the axis of classes, which may be 1 there."""
    shape = list(outputs.shape)
    del shape[axis]
    return _bare(targets) == _bare(torch.empty(shape, device="meta")) and targets.numel() == math.prod(shape)


def _bare(tensor: Tensor) -> tuple[int, ...]:
    """The shape without axes of 1, but for the first."""
    return (*tensor.shape[:1], *(length for length in tensor.shape[1:] if length != 1))


def _tensor(value: Any, what: str) -> Tensor:
    if isinstance(value, Tensor):
        small = not (value.is_floating_point() or value.is_complex())
        return value.detach().long() if small else value.detach()  # torch wraps what a small type cannot hold
    raise Misfit(
        f"the {what} are of type {type(value).__name__}, and this metric takes a tensor; let the network give one, or "
        "name a metric of your own, module:Name of a function of (outputs, targets)"
    )


def _unread(form: Form, outputs: Tensor, targets: Tensor) -> Misfit:
    last = outputs.dim() > 2 and form.class_axis != -1 and _is_one_less(outputs, targets, outputs.dim() - 1)
    mend = "give targets (samples, ...) to class scores (samples, classes, ...), or one output a target"
    if last:
        mend = "the classes are along the last axis: add arguments: {class_axis: -1}, or transpose the outputs"
    return _misfit(outputs, targets, "they do not go together", mend)


def _misfit(outputs: Tensor, targets: Tensor, what: str, mend: str) -> Misfit:
    shapes: Sequence[str] = [f"{tuple(each.shape)} of {str(each.dtype)[6:]}" for each in (outputs, targets)]
    return Misfit(f"outputs of shape {shapes[0]} and targets of shape {shapes[1]}: {what}; {mend}")


NOTHING = math.nan
"""The value of a metric for which no sample counted."""


class Metric(Protocol):
    """One metric of a job."""

    @property
    def better(self) -> Direction | None:
        """Whether more or less of it is better; None: nobody says."""

    def state(self, outputs: Any, targets: Any) -> Any:
        """Return what a batch says, a plain tree on the host. Misfit, or whatever a person's own code raises."""

    def value(self, states: Sequence[Any]) -> float:
        """Return the value over the batches of these states, in their order; NOTHING if no sample counts."""


class Mean:
    """A mean, of a function of (outputs, targets) that gives (sum, count)."""

    def __init__(
        self,
        function: Callable[[Any, Any], tuple[float, float]],
        better: Direction | None = None,
        finish: Callable[[float], float] = lambda mean: mean,
    ) -> None:
        self.better, self._function, self._finish = better, function, finish

    def state(self, outputs: Any, targets: Any) -> Any:
        """Return (sum, count). Misfit if the function gives no such pair."""
        found = self._function(outputs, targets)
        try:
            total, count = found
            return float(total), float(count)
        except (TypeError, ValueError):
            raise Misfit(f"it gives {found!r:.80}, and must give (sum over the samples, number of samples)") from None

    def value(self, states: Sequence[Any]) -> float:
        """Return the mean."""
        mean = mean_of(states)
        return mean if math.isnan(mean) else self._finish(mean)


def mean_of(sums: Iterable[Sequence[float]]) -> float:
    """Return the sum of (sum, count), added one after the other, by the count; NOTHING if that is 0."""
    total, count = 0.0, 0.0
    for added, number in sums:
        total, count = total + added, count + number
    return total / count if count else NOTHING


def accuracy(outputs: Any, targets: Any, form: Form = Form()) -> tuple[float, float]:
    """Targets that the greatest score names; of one logit, and of labels, those on whose side of 0 it is."""
    read = classes_of(form, outputs, targets)
    right, counts = read.found == read.targets, read.targets != IGNORED
    return float((right & counts).sum().item()), float(counts.sum().item())


def top5(outputs: Any, targets: Any, form: Form = Form()) -> tuple[float, float]:
    """Targets that are among the five greatest scores."""
    read = classes_of(form.with_kind("multiclass"), outputs, targets)
    best = read.scores.topk(min(5, read.scores.shape[1]), dim=1).indices
    right = (best == read.targets.unsqueeze(1)).any(dim=1)
    return float(right.sum().item()), float(right.numel())


def absolute_error(outputs: Any, targets: Any, form: Form = Form()) -> tuple[float, float]:
    """Distances of outputs from targets, element by element."""
    found, wanted = values_of(form, outputs, targets)
    return float((found - wanted).abs().sum().item()), float(wanted.numel())


def squared_error(outputs: Any, targets: Any, form: Form = Form()) -> tuple[float, float]:
    """Squares of these distances."""
    found, wanted = values_of(form, outputs, targets)
    return float((found - wanted).square().sum().item()), float(wanted.numel())


def surprise(outputs: Any, targets: Any, form: Form = Form()) -> tuple[float, float]:
    """Minus the logarithms of the targets' probabilities."""
    read = classes_of(form.with_kind("multiclass"), outputs, targets)
    scores = read.scores.to(torch.promote_types(read.scores.dtype, torch.float32))
    chosen = scores.gather(1, read.targets.unsqueeze(1)).squeeze(1)
    told = scores.logsumexp(dim=1) - chosen if read.logits else -chosen.log()
    return float(told.double().sum().item()), float(told.numel())


def mean_metric(name: str, form: Form) -> Metric | None:
    """Return the metric of that name that needs no more than sums; None: there is none."""
    if name not in _MEANS:
        return None
    function, better, finish = _MEANS[name]
    return Mean(partial(function, form=form), better, finish)


_MEANS: Mapping[str, tuple[Callable[..., tuple[float, float]], Direction, Callable[[float], float]]] = MappingProxyType(
    {
        "accuracy": (accuracy, "higher", float),
        "top5": (top5, "higher", float),
        "mean_absolute_error": (absolute_error, "lower", float),
        "mean_squared_error": (squared_error, "lower", float),
        "rmse": (squared_error, "lower", math.sqrt),
        "perplexity": (surprise, "lower", lambda mean: math.exp(mean) if mean < 700 else math.inf),
    }
)
MEANS: Mapping[str, Direction] = MappingProxyType({name: better for name, (_, better, _) in _MEANS.items()})
"""The metrics that need no more than sums, and whether more or less of each is better."""


class DefaultAccuracy(Mean):
    """The accuracy of a task that names no metrics; it has no value where outputs and targets are no classes."""

    def __init__(self) -> None:
        super().__init__(accuracy, "higher")

    def state(self, outputs: Any, targets: Any) -> Any:
        """Return (sum, count); None where these are no classes."""
        try:
            return super().state(outputs, targets)
        except Misfit:
            return None

    def value(self, states: Sequence[Any]) -> float:
        """Return the accuracy, if all batches have one."""
        return NOTHING if any(state is None for state in states) else super().value(states)


Given = tuple[tuple[Any, ...], Mapping[str, Any]]
"""What a metric object is updated with, and the arguments that it is made with beside the person's own."""


class Collected:
    """A metric of torchmetrics.

    Batches stand where torchmetrics has processes: the state of each begins anew, and they are put together as
    torchmetrics puts those of processes together. Where it does not say how, or has means of unknown weights, what the
    object was updated with is kept instead, and one object is updated with all of it.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        arguments: Mapping[str, Any],
        better: Direction | None,
        read: Callable[[Any, Any], Given | None] = lambda outputs, targets: ((outputs, targets), {}),
        is_nothing: Callable[[Any], bool] = lambda metric: False,
    ) -> None:
        """make: gives the object. read: of a batch, what it is updated with; None: nothing of that counts.

        is_nothing: whether an object with all states has nothing to compute a value of.
        """
        self.better, self._make, self._arguments, self._read = better, make, dict(arguments), read
        self._is_nothing = is_nothing
        self._made: dict[str, Any] = {}

    def state(self, outputs: Any, targets: Any) -> Any:
        """Return the object's states after this batch alone, and how it was made; None if nothing counts."""
        given = self._read(*map(_on_host, (outputs, targets)))
        if given is None:
            return None
        metric, made = self._object(given[1]), dict(given[1])
        if not _is_mergeable(metric):
            return {"made": made, "given": on_host(list(given[0]))}
        metric.reset()
        metric.update(*given[0])
        states = on_host({name: getattr(metric, name) for name in metric._defaults})  # which a reset empties in place
        metric.reset()
        return {"made": made, "states": states}

    def value(self, states: Sequence[Any]) -> float:
        """Return the value that the object computes of all states. Misfit if that is not one number."""
        counting = [state for state in states if state is not None]
        if not counting:
            return NOTHING
        metric = self._object(counting[0]["made"])
        metric.reset()
        if "given" in counting[0]:
            for state in counting:
                metric.update(*state["given"])
        else:
            for name in metric._defaults:
                setattr(metric, name, _merged(metric, name, [state["states"][name] for state in counting]))
            metric._update_count = len(counting)
        found = NOTHING if self._is_nothing(metric) else metric.compute()
        metric.reset()
        if isinstance(found, Tensor) and found.numel() == 1:
            return float(found.item())
        if isinstance(found, (int, float)):
            return float(found)
        told = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise Misfit(f"it gives {told}, and a metric is one number; give it arguments such as average: macro")

    def make(self) -> None:
        """Make the object now; whatever its class raises."""
        self._object({})

    def _object(self, more: Mapping[str, Any]) -> Any:
        key = repr(sorted(more.items()))
        if key not in self._made:
            self._made[key] = alone(self._make(**{**more, **self._arguments}))
        return self._made[key]


def alone(metric: Any) -> Any:
    """Let a metric of torchmetrics ask no other processes, whose groups are for other things."""
    metric.sync_on_compute = metric.dist_sync_on_step = metric.compute_with_cache = False
    return metric


def _is_mergeable(metric: Any) -> bool:
    """Whether torchmetrics says how the states of several such objects become one, whatever each has seen."""
    unsaid = [name for name, reduction in metric._reductions.items() if reduction is None]
    means = [each for each in metric._reductions.values() if getattr(each, "__name__", "") == "dim_zero_mean"]
    lists = all(isinstance(metric._defaults[name], list) for name in unsaid)
    return bool(metric._defaults) and lists and not means


def _on_host(value: Any) -> Any:
    """A copy on the host; what is of a person's own class stays as it is."""
    return on_host(value) if type(value) in (Tensor, dict, list, tuple) else value


def _merged(metric: Any, name: str, parts: list[Any]) -> Any:
    """One state of several, as torchmetrics has it after all processes have been asked."""
    reduction = metric._reductions[name]
    word = getattr(reduction, "__name__", "")
    if isinstance(metric._defaults[name], list):
        return [item for part in parts for item in (part if isinstance(part, list) else [part])]
    if word == "dim_zero_cat":
        return torch.cat([torch.atleast_1d(part) for part in parts])
    if len(parts) == 1:
        return parts[0]
    if word == "dim_zero_sum":
        total = parts[0].double() if parts[0].is_floating_point() else parts[0]
        for part in parts[1:]:
            total = total + part
        return total
    return reduction(torch.stack(parts))


def is_object(value: Any) -> bool:
    """Whether a value is a metric of torchmetrics."""
    return not isinstance(value, type) and is_class(type(value))


def is_class(value: type) -> bool:
    """Whether a class is one of torchmetrics' metrics."""
    return any(each.__module__ == "torchmetrics.metric" for each in value.__mro__)


def direction_of(value: Any) -> Direction | None:
    """Return what a metric, or its class, declares of its direction: `better`, or torchmetrics' `higher_is_better`."""
    told = getattr(value, "better", None)
    if told in ("higher", "lower"):
        return told  # type: ignore[no-any-return]
    found = getattr(value, "higher_is_better", None)
    return None if not isinstance(found, bool) else "higher" if found else "lower"


def reader_of(made_of: type, form: Form) -> Callable[[Any, Any], Given | None]:
    """Return how a class of torchmetrics is given batches: those of classifications probabilities, others as it is."""
    names = [each.__name__ for each in made_of.__mro__ if each.__module__.startswith("torchmetrics.classification")]
    if not names:
        return lambda outputs, targets: ((outputs, targets), {})
    said = next((kind for name in names for kind in KINDS if name.lower().startswith(kind)), None)
    wanted = frozenset(inspect.signature(made_of).parameters)
    return partial(given_classes, form=form.with_kind(said), wanted=wanted)


def given_classes(
    outputs: Any, targets: Any, form: Form, wanted: frozenset[str], two: Kind | None = None, hard: bool = False
) -> Given | None:
    """What a metric of a classification is updated with, and of the arguments in `wanted` those that shapes tell.

    two: how two classes are read, `binary` as the second one and its absence; None: as they come. hard: classes do, in
    place of probabilities.
    """
    read = classes_of(form, outputs, targets)
    if two == "binary" and read.kind == "multiclass" and read.scores.shape[1] == 2:
        read = Classes("binary", read.probabilities[:, 1], read.targets, False)
    if two == "multiclass" and read.kind == "binary":
        there = read.probabilities
        read = Classes("multiclass", torch.stack([1 - there, there], dim=1), read.targets, False)
    if not read.targets.numel():
        return None
    told: dict[str, Any] = {"task": read.kind}
    if read.kind != "binary":
        told["num_classes" if read.kind == "multiclass" else "num_labels"] = read.scores.shape[1]
    if read.kind == "multilabel":
        told["ignore_index"] = IGNORED
    found = read.found if hard else read.probabilities
    return (found, read.targets), {name: value for name, value in told.items() if name in wanted}


def has_one_class(metric: Any) -> bool:
    """Whether a metric that ranks two classes has seen but one of them."""
    seen = getattr(metric, "target", None)
    found = torch.cat(seen) if isinstance(seen, list) and seen else None
    return found is not None and type(metric).__name__.startswith("Binary") and bool((found == found[0]).all())


def as_metric(value: Any) -> Metric:
    """Return the metric that a task gives: a metric, an object of torchmetrics, or a function of (sum, count)."""
    if is_object(value):
        made = alone(value)
        return Collected(lambda **_: made, {}, direction_of(made), reader_of(type(made), Form()))
    if hasattr(value, "state") and hasattr(value, "value"):
        return value  # type: ignore[no-any-return]
    return Mean(value, direction_of(value))


def values(batches: Iterable[Mapping[str, Any]], metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Return each metric's value over batches in their order: from states if it is in `metrics`, else from sums."""
    states: dict[str, list[Any]] = {}
    for batch in batches:
        for name, state in batch.items():
            states.setdefault(name, []).append(state)
    known = {name: metrics[name].value(found) if name in metrics else mean_of(found) for name, found in states.items()}
    unasked = [name for name, value in known.items() if math.isnan(value) and _is_usual(metrics.get(name))]
    return {name: value for name, value in known.items() if name not in unasked}


def _is_usual(metric: Metric | None) -> bool:
    return isinstance(metric, DefaultAccuracy)
