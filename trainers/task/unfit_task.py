"""What is raised where a task, as it is written, cannot be trained."""

from __future__ import annotations

from typing import Any


class UnfitTask(ValueError):
    """A task cannot be trained as it is written; the text says what is wrong, and the mend."""


def given(job: str, call: str, value: Any, kind: type[Any], is_wanted: str) -> Any:
    """Return what a method of a task gave. UnfitTask if it is of another kind; a `return` is forgotten easily."""
    if isinstance(value, kind):
        return value
    forgotten = "; is its `return` missing?" if value is None else ""
    raise UnfitTask(f"job {job}: {call} gives {_shown(value)}, and must give {is_wanted}{forgotten}")


def _shown(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
