"""Metrics by name, and whether more or less of each is better: as somebody declares it, never by its name.

A metric declares it (classes of torchmetrics, attributes `better`), or an entry of `metrics`, or a task class. What is
called as a built-in metric has the direction of that one, unless it declares another.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationError, model_validator

from fleet.spec.problem import nearest
from fleet.spec.references import ReferenceProblem, resolve
from fleet.spec.values import METRIC_NAME, METRIC_SAID, Arguments, Section, Text, refusal

if TYPE_CHECKING:
    from trainers.task.metrics import Form, Given, Metric


Direction = Literal["higher", "lower"]
LOSSES: Mapping[str, Direction] = MappingProxyType({"loss": "lower", "test_loss": "lower", "validation_loss": "lower"})
"""What every job may measure by itself."""
COLUMNS = frozenset({*LOSSES, "job", "epoch", "step", "time", "rate", "devices", "learning_rate"})
"""What results have beside metrics, which no metric is called."""


@dataclass(frozen=True)
class _BuiltIn:
    """A built-in metric.

    Attributes:
        of: its class in torchmetrics; "": sums do.
        reads: how batches are given to it.
        arguments: with which it is made.
        two: how two classes are read: as the second one and its absence, or as two.
    """

    better: Direction
    of: str = ""
    reads: Literal["classes", "scores", "values", "words"] = "classes"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    two: Literal["binary", "multiclass"] = "binary"


_MACRO = {"average": "macro"}
BUILT_IN: Mapping[str, _BuiltIn] = MappingProxyType(
    {
        "accuracy": _BuiltIn("higher"),
        "top5": _BuiltIn("higher"),
        "mean_absolute_error": _BuiltIn("lower"),
        "mean_squared_error": _BuiltIn("lower"),
        "rmse": _BuiltIn("lower"),
        "perplexity": _BuiltIn("lower"),
        "f1": _BuiltIn("higher", "classification:F1Score", arguments=_MACRO),
        "precision": _BuiltIn("higher", "classification:Precision", arguments=_MACRO),
        "recall": _BuiltIn("higher", "classification:Recall", arguments=_MACRO),
        "specificity": _BuiltIn("higher", "classification:Specificity", arguments=_MACRO),
        "balanced_accuracy": _BuiltIn("higher", "classification:Accuracy", arguments=_MACRO, two="multiclass"),
        "mean_iou": _BuiltIn("higher", "classification:JaccardIndex", arguments=_MACRO, two="multiclass"),
        "cohen_kappa": _BuiltIn("higher", "classification:CohenKappa"),
        "matthews": _BuiltIn("higher", "classification:MatthewsCorrCoef"),
        "auroc": _BuiltIn("higher", "classification:AUROC", "scores", _MACRO),
        "average_precision": _BuiltIn("higher", "classification:AveragePrecision", "scores", _MACRO),
        "r2": _BuiltIn("higher", "regression:R2Score", "values"),
        "pearson": _BuiltIn("higher", "regression:PearsonCorrCoef", "values"),
        "word_error_rate": _BuiltIn("lower", "text:WordErrorRate", "words"),
        "char_error_rate": _BuiltIn("lower", "text:CharErrorRate", "words"),
    }
)


class NamedMetric(Section):
    """A metric that says more than its name."""

    name: Text = Field(description="What it is called in results.", examples=["wer"])
    of: Text | None = Field(
        default=None,
        description="A built-in name, or `module:Name`; null: the built-in metric of this name, or where the job has a "
        "`task`, the one of this name that the task measures.",
        examples=["torchmetrics.text:WordErrorRate"],
    )
    better: Direction | None = Field(
        default=None,
        description="Whether more or less of it is better: `higher` or `lower`; null: as the metric declares.",
        examples=["lower"],
    )
    arguments: Arguments = Field(
        default_factory=dict,
        description="What the class is made with, or the function gets beside (outputs, targets). Metrics of classes "
        "take `task` (`binary`, `multiclass` or `multilabel`) and `class_axis`, too, where shapes do not tell.",
        examples=[{"average": "macro"}],
    )

    @model_validator(mode="after")
    def _says_no_other_direction(self) -> NamedMetric:
        own = BUILT_IN.get(self.reference)
        if own is not None and self.better not in (None, own.better):
            rule = f"{self.better} is said to be better of {self.reference}, and {own.better} is"
            raise refusal(rule, "take better away")
        return self

    @property
    def reference(self) -> str:
        """The built-in name, or module:Name, of what is measured."""
        return self.of or self.name


def _form_of_entry(value: Any) -> str:
    return METRIC_SAID if isinstance(value, (Mapping, NamedMetric)) else METRIC_NAME


MetricEntry = Annotated[
    Annotated[Text, Tag(METRIC_NAME)] | Annotated[NamedMetric, Tag(METRIC_SAID)], Discriminator(_form_of_entry)
]
"""A metric of a job: a name alone, or with what else there is to say."""


def metric_name(entry: str | NamedMetric) -> str:
    """Return what a metric is called in results: ``Name`` of ``module:Name``."""
    return entry.rpartition(":")[2] if isinstance(entry, str) else entry.name


def declare_alone(entries: Any) -> bool:
    """Return whether entries of metrics say directions, and nothing of how anything is measured."""
    if not isinstance(entries, (list, tuple)):
        return False
    told = [entry if isinstance(entry, Mapping) else getattr(entry, "__dict__", {}) for entry in entries]
    return all(entry.get("better") and not entry.get("of") and not entry.get("arguments") for entry in told)


def _named_apart(entries: tuple[str | NamedMetric, ...]) -> tuple[str | NamedMetric, ...]:
    """The entries; two metrics may not have one name, or one that of what results have beside metrics."""
    names = [metric_name(entry) for entry in entries]
    wrong = next((name for name in names if names.count(name) > 1 or name in COLUMNS), None)
    if wrong is not None:
        rule = f"results have a {wrong} already" if wrong in COLUMNS else f"two metrics are called {wrong}"
        raise refusal(rule, f"give it a name of its own: {{name: my_{wrong}, of: ...}}")
    return entries


JobMetrics = Annotated[tuple[MetricEntry, ...], AfterValidator(_named_apart)]


def section_of(entry: str | NamedMetric) -> NamedMetric:
    """The entry with everything that it says."""
    return NamedMetric(name=metric_name(entry), of=entry) if isinstance(entry, str) else entry


def direction_of(entry: str | NamedMetric) -> Direction | None:
    """Return whether more or less of a metric is better, as the spec, the table or its class says; None: nobody does.

    A class that cannot be imported says nothing; ``named_metric`` tells of it.
    """
    said = section_of(entry)
    if said.better is not None or said.reference in BUILT_IN:
        return said.better or BUILT_IN[said.reference].better
    from trainers.task.metrics import direction_of as declared

    try:
        found = resolve(said.reference) if ":" in said.reference else None
    except ReferenceProblem:
        return None
    binary = getattr(sys.modules.get(getattr(found, "__module__", "")), f"Binary{getattr(found, '__name__', '')}", None)
    return declared(found) or declared(binary)  # torchmetrics' classes for any task leave that to the others


def named_metric(entry: str | NamedMetric, form: Form | None = None) -> Metric:
    """The metric that a spec names; of a class that is no metric of torchmetrics, an instance made of its arguments.

    Args:
        entry: what the spec says.
        form: how the job's outputs and targets are read; None: as their shapes say.

    Raises:
        ReferenceProblem: there is none, or it cannot be measured batch by batch.
    """
    from trainers.task.metrics import Form as _Form
    from trainers.task.metrics import Mean, mean_metric

    said = section_of(entry)
    if ":" in said.reference:
        return _of_reference(said, form or _Form())
    if said.reference not in BUILT_IN:
        rule = f"{said.reference!r} is not a metric; built in are {', '.join(BUILT_IN)}"
        raise ReferenceProblem(rule, nearest(said.reference, BUILT_IN), "write one of these, or module:Name")
    form, arguments = _with_arguments(form or _Form(), said.arguments)
    own = mean_metric(said.reference, form)
    if own is None:
        return _of_torchmetrics(said, BUILT_IN[said.reference], form, arguments)
    if arguments:
        rule = f"{said.reference} takes no argument {next(iter(arguments))}"
        raise ReferenceProblem(rule, mend="take it away; it takes task and class_axis alone")
    assert isinstance(own, Mean)
    return own


def _with_arguments(form: Form, arguments: Mapping[str, Any]) -> tuple[Form, dict[str, Any]]:
    """The form with what arguments say of it, and the other ones."""
    from trainers.task.metrics import KINDS

    left, task = dict(arguments), arguments.get("task")
    axis = left.pop("class_axis", form.class_axis)
    if task is not None and task not in KINDS:
        raise ReferenceProblem(f"task is {task!r}; it is one of {', '.join(KINDS)}", nearest(str(task), KINDS))
    if type(axis) is not int or axis == 0:
        raise ReferenceProblem(f"class_axis is {axis!r}, and axis 0 counts samples", "1", "give the axis of classes")
    left.pop("task", None)
    return dataclasses.replace(form.with_kind(task), class_axis=axis), left


def _of_torchmetrics(said: NamedMetric, own: _BuiltIn, form: Form, arguments: dict[str, Any]) -> Metric:
    from trainers.task.metrics import Collected, given_classes, has_one_class

    made_of = resolve(f"torchmetrics.{own.of}")
    wanted = frozenset(inspect.signature(made_of).parameters)
    unknown = next((name for name in arguments if name not in wanted), None)
    if unknown is not None:
        raise ReferenceProblem(
            f"{said.reference} takes no argument {unknown}", nearest(unknown, wanted), "correct it, or take it away"
        )
    two = None if {"average", "num_classes", "top_k", "task"} & said.arguments.keys() else own.two
    read: Callable[[Any, Any], Given | None] = {
        "classes": partial(given_classes, form=form, wanted=wanted, two=two, hard="top_k" not in arguments),
        "scores": partial(given_classes, form=form, wanted=wanted, two=two),
        "values": partial(_given_values, form=form),
        "words": partial(_given_words, form=form),
    }[own.reads]
    defaults = {name: value for name, value in own.arguments.items() if name in wanted}
    if said.arguments.get("task") is not None and "task" in wanted:
        arguments["task"] = said.arguments["task"]
    whole = {**defaults, **arguments}
    if own.reads == "scores":
        return Collected(made_of, whole, own.better, read, has_one_class)
    return Collected(made_of, whole, own.better, read)


def _given_values(outputs: Any, targets: Any, form: Form) -> Given | None:
    from trainers.task.metrics import Misfit, values_of

    if getattr(outputs, "dim", int)() > 1 and outputs.shape[1] > 1:
        raise Misfit(
            f"outputs of shape {tuple(outputs.shape)} are several values of a sample; this metric is of one; name "
            "torchmetrics.regression:Name with its arguments, or a metric of your own"
        )
    found = values_of(form, outputs, targets)
    return (found, {}) if found[0].numel() else None


def _given_words(outputs: Any, targets: Any, form: Form) -> Given | None:
    """Texts as they are; of class scores, the numbers of the classes as words."""
    if isinstance(outputs, (list, tuple)) and all(isinstance(text, str) for text in outputs):
        return ((list(outputs), list(targets)), {}) if outputs else None
    from trainers.task.metrics import classes_of

    said: tuple[list[str], list[str]] = ([], [])
    for one, wanted in zip(outputs, targets):
        read = classes_of(form.with_kind("multiclass"), one[None], wanted[None])
        if read.targets.numel():
            for texts, numbers in zip(said, (read.found, read.targets)):
                texts.append(" ".join(map(str, numbers.tolist())))
    return (said, {}) if said[0] else None


def _of_reference(said: NamedMetric, form: Form) -> Metric:
    """The metric that ``module:Name`` names."""
    from trainers.task.metrics import Mean, as_metric, is_class, is_object
    from trainers.task.metrics import direction_of as declared

    found, better = resolve(said.reference), direction_of(said)
    own = declared(found)
    if own is not None and own != better:
        rule = f"better is {better}, and {said.reference} declares that {own} is"
        raise ReferenceProblem(rule, own, "take better away, or correct what the metric declares")
    try:
        if inspect.isclass(found) and is_class(found):
            return _of_class(found, said, form, better)
        made = found(**said.arguments) if inspect.isclass(found) else found
        if is_object(made):
            return as_metric(made)
    except ReferenceProblem:
        raise
    except Exception as error:  # the user's code may raise anything
        rule = f"making {said.reference} raised {type(error).__name__}: {error}"
        raise ReferenceProblem(rule, mend="mend the class, or give it other arguments") from None
    if not callable(made):
        rule = f"{said.reference} is of type {type(made).__name__} and cannot be called"
        raise ReferenceProblem(rule, mend="name a function, or a class of torchmetrics")
    called = made if inspect.isclass(found) or not said.arguments else partial(made, **said.arguments)
    return Mean(called, better or declared(made))


def _of_class(found: type, said: NamedMetric, form: Form, better: Direction | None) -> Metric:
    """The metric of a class of torchmetrics."""
    from trainers.task.metrics import Collected, reader_of

    arguments, takes = dict(said.arguments), inspect.signature(found).parameters
    if found.__module__.startswith("torchmetrics.classification"):
        form, arguments = _with_arguments(form, said.arguments)
        arguments |= {"task": said.arguments["task"]} if "task" in said.arguments and "task" in takes else {}
    metric = Collected(found, arguments, better, reader_of(found, form))
    if not {"num_classes", "num_labels", "task"} & takes.keys():  # nothing of it is found in batches
        metric.make()
    return metric


def declared(task: str | None, entries: Iterable[str | NamedMetric]) -> dict[str, Direction]:
    """Metric -> its direction, of all metrics of which it is declared.

    Args:
        task: module:Name of the job's task class, if it has one.
        entries: of the job's `metrics`.
    """
    own = {name: metric.better for name, metric in BUILT_IN.items()}
    return {**LOSSES, **own, **declared_alone(task, entries)}


def declared_alone(task: str | None, entries: Iterable[str | NamedMetric]) -> dict[str, Direction]:
    """The same, without what names of built-in metrics and losses say."""
    told = {metric_name(entry): direction_of(entry) for entry in entries}
    known = {name: better for name, better in told.items() if better is not None}
    return {**({} if task is None else _of_task(task)), **known}


def declared_of(job: Mapping[str, Any]) -> dict[str, Direction]:
    """The same, of the keys of a job as they are written."""
    task, entries = job.get("task"), []
    for entry in job.get("metrics") or ():
        with suppress(ValidationError):
            entries.append(entry if isinstance(entry, str) else NamedMetric.model_validate(entry))
    return declared(task.get("name") if isinstance(task, Mapping) else task, entries)


def _of_task(name: str) -> dict[str, Direction]:
    """Return what a task class declares of its metrics, and the accuracy of one that says nothing of metrics."""
    from trainers.task.metrics import direction_of as of_object

    found: dict[str, Direction] = {}
    task: Any = None
    with suppress(ReferenceProblem):
        task = resolve(name)
    metrics, said = getattr(task, "metrics", None), getattr(task, "better", None)
    if isinstance(metrics, Mapping):
        found |= {key: better for key, metric in metrics.items() if (better := of_object(metric)) is not None}
    if isinstance(said, Mapping):
        found |= {str(key): better for key, better in said.items() if better in ("higher", "lower")}
    return found
