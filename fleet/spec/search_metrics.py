"""By which metrics a search compares its trials, and whether less or more of each is better."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from fleet.spec.problem import nearest
from fleet.spec.values import Text

Direction = Literal["min", "max"]
WEIGHS_ONE = ("tpe", "gp", "cmaes")
"""Samplers that learn from one metric."""
_MODES = ("min", "max")


def _metric(value: Any) -> Any:
    names = value if isinstance(value, (list, tuple)) else [value]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise PydanticCustomError(
            "no_metric", "is the name of a metric, or a list of such names", {"mend": "write `accuracy`, for one"}
        )
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise PydanticCustomError("metric_twice", "{name} stands there twice", {"name": twice, "mend": "name it once"})
    return value


def _mode(value: Any) -> Any:
    for one in value if isinstance(value, (list, tuple)) else [value]:
        if one is not None and one not in _MODES:
            suggestion = nearest(one, _MODES) if isinstance(one, str) else None
            context = {"mend": "write one of these, or one for each metric"}
            context |= {"suggestion": suggestion} if suggestion else {}
            raise PydanticCustomError("no_mode", "is min or max, or a list of these", context)
    return value


Metrics = Annotated[Text | tuple[Text, ...], BeforeValidator(_metric)]
Modes = Annotated[Direction | tuple[Direction, ...] | None, BeforeValidator(_mode)]


def several(metric: Metrics) -> tuple[str, ...]:
    """The metrics, the first of which decides."""
    return (metric,) if isinstance(metric, str) else tuple(metric)


def check_several(metric: Metrics, mode: Modes, sampler: str) -> None:
    """Check that a search can go by its metrics.

    Raises:
        PydanticCustomError: it cannot.
    """
    count = len(several(metric))
    told = 1 if isinstance(mode, str) else count if mode is None else len(mode)
    if told != count:
        raise PydanticCustomError(
            "modes_of_metrics",
            "mode says a direction for {told} of {count} metrics",
            {"told": told, "count": count, "mend": "give each its own, as [max, min], or take mode away"},
        )
    if count > 1 and sampler in WEIGHS_ONE:
        raise PydanticCustomError(
            "several_metrics",
            "{sampler} learns from one metric, and the search has {count}",
            {"sampler": sampler, "count": count, "suggestion": "nsga2", "mend": "take nsga2, or name one metric"},
        )
