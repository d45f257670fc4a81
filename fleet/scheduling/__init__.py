"""Pure scheduling: states in, plans out. No MPI, no torch, no clock, no files.

A policy of one's own needs three names from here: `Policy`, its base class; `State`, what it is told; `Plan`, what it
answers. Specs and command lines name it as `module:Name`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.scheduling.model.policy import Plan, Policy, State

__all__ = ["Plan", "Policy", "State"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Load what is public when it is first used: ranks that train need none of it."""
    if name in __all__:
        return getattr(import_module("fleet.scheduling.model.policy"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
