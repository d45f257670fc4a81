"""Metrics by name: functions of (outputs, targets) that give (sum over the samples, number of samples)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import Tensor

from fleet.spec.problem import nearest
from fleet.spec.references import ReferenceProblem, resolve

Metric = Callable[[Tensor, Tensor], "tuple[float, float]"]


def accuracy(outputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Samples whose greatest output is the target's class. Outputs (samples, classes, ...), targets (samples, ...)."""
    right = outputs.argmax(dim=1) == targets
    return float(right.sum().item()), float(right.numel())


def top5(outputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Samples whose target is among the five greatest outputs; shapes as for ``accuracy``."""
    best = outputs.topk(min(5, outputs.shape[1]), dim=1).indices
    right = (best == targets.unsqueeze(1)).any(dim=1)
    return float(right.sum().item()), float(right.numel())


def mean_absolute_error(outputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Distance of outputs from targets, averaged over the elements of a sample. As many elements in both."""
    samples = len(targets)
    distance = (outputs.reshape(samples, -1).double() - targets.reshape(samples, -1).double()).abs()
    return float(distance.mean(dim=1).sum().item()), float(samples)


_METRICS: Mapping[str, Metric] = MappingProxyType(
    {"accuracy": accuracy, "top5": top5, "mean_absolute_error": mean_absolute_error}
)


def metric_name(text: str) -> str:
    """What a metric is called in results: ``Name`` of ``module:Name``."""
    return text.rpartition(":")[2]


def named_metric(text: str) -> Metric:
    """The metric that a spec names; of a class, an instance made without arguments.

    Raises:
        ReferenceProblem: there is none.
    """
    if ":" not in text:
        if text not in _METRICS:
            rule = f"{text!r} is not a metric; built in are {', '.join(_METRICS)}"
            raise ReferenceProblem(rule, nearest(text, _METRICS), "write one of these, or module:Name")
        return _METRICS[text]
    found = resolve(text)
    try:
        metric = found() if inspect.isclass(found) else found
    except Exception as error:  # the user's code may raise anything
        raise ReferenceProblem(f"making {text} raised {type(error).__name__}: {error}", mend="mend the class") from None
    if not callable(metric):
        raise ReferenceProblem(
            f"{text} is of type {type(metric).__name__} and cannot be called", mend="name a function"
        )
    return metric  # type: ignore[no-any-return]
