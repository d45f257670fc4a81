"""What people see of a run: the report, the live view, metrics for other tools; all computed from the journal.

A tracker of one's own inherits from `Tracker` and is told of a `TrackedRun` and its `Point`s.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.report.tracker import Point, StoreError, TrackedEnsemble, TrackedRun, Tracker

__all__ = ["Point", "StoreError", "TrackedEnsemble", "TrackedRun", "Tracker"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Load what is public when it is first used: a run needs none of it."""
    if name in __all__:
        return getattr(import_module("fleet.report.tracker"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
