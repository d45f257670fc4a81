"""What a job declares of the directions of its metrics; nothing is guessed from names.

A metric declares it (classes of torchmetrics, attributes `better`), or an entry of `metrics`, or a task class. What is
called as a built-in metric has the direction of that one, unless it declares another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from fleet.spec.metrics import BUILT_IN, LOSSES, Direction, NamedMetric, direction_of, metric_name
from fleet.spec.references import ReferenceProblem, resolve


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
    """What a task class declares of its metrics, and the accuracy of one that says nothing of metrics."""
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
