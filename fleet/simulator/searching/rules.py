"""Stopping rules as they are written on the command line: `halving:eta=3,rungs=1/3/9`, `module:Name:patience=2`."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from fleet.simulator.comparing.settings import read_settings
from fleet.spec.plugins import STOPPING_RULES
from fleet.spec.search import Stopping

_EXAMPLE = "halving:eta=3,rungs=1/3/9"


def stopping_of(text: str) -> Stopping:
    """The rule that a text names, with its keys as in a spec.

    Raises:
        ValueError: there is no such rule, or it has no such key or value.
    """
    name, _, rest = text.partition(":")
    first, _, others = rest.partition(":")
    if name not in STOPPING_RULES.built_in and first and "=" not in first:  # the class of a `module:Name`
        name, rest = f"{name}:{first}", others
    given = {key: _plain(key, value) for key, value in (read_settings(rest, _EXAMPLE) if rest else {}).items()}
    keys = {"arguments": given} if ":" in name else given
    try:
        return Stopping.model_validate({"name": name.strip(), **keys})
    except ValidationError as error:
        told = "; ".join(_problem(problem) for problem in error.errors())
        raise ValueError(f"--stopping {text}: {told}; write it as {_EXAMPLE}") from None


def label_of(stopping: Stopping) -> str:
    """Write a rule as `stopping_of` reads it, with the keys that are set."""
    keys = [
        f"{key}={_told(getattr(stopping, key))}"
        for key in type(stopping).model_fields
        if key in stopping.model_fields_set
        and key not in ("name", "arguments")
        and getattr(stopping, key) != _default(key)
    ]
    keys += [f"{key}={_told(value)}" for key, value in stopping.arguments.items()]
    return stopping.name + (":" + ",".join(keys) if keys else "")


def _plain(key: str, value: Any) -> Any:
    """Rungs are written with strokes between them."""
    if key != "rungs" or isinstance(value, list):
        return value
    parts = str(value).split("/")
    return [int(part) if part.strip().isdigit() else part for part in parts]


def _told(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "/".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _default(key: str) -> Any:
    return Stopping.model_fields[key].default


def _problem(problem: Any) -> str:
    where = ".".join(map(str, problem["loc"]))
    context = problem.get("ctx", {})
    more = "".join(f" ({context[key]})" for key in ("mend",) if key in context)
    return f"{where + ': ' if where else ''}{problem['msg']}{more}"
