"""fleet: train an ensemble of different networks in one MPI job, each with the bits it would have had alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.run.from_python.attached import attach
    from fleet.run.from_python.starting import run
    from fleet.run.harvest.load import load

__all__ = ["attach", "load", "run"]
__version__ = "0.2.0"

_FROM = {"load": "fleet.run.harvest.load", "attach": "fleet.run.from_python.attached"}


def __getattr__(name: str) -> Any:
    """Load what is public when it is first used; `run` is the room of that name, which can be called."""
    from importlib import import_module

    if name == "run":
        return import_module("fleet.run")
    if name in _FROM:
        return getattr(import_module(_FROM[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
