"""fleet: train an ensemble of different networks in one MPI job, each with the bits it would have had alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.models.load import load
    from fleet.session.from_python import attach, run

__all__ = ["attach", "load", "run"]
__version__ = "0.2.0"

_DEFINED_IN = {"attach": "fleet.session.from_python", "load": "fleet.models.load", "run": "fleet.session.from_python"}


def __getattr__(name: str) -> Any:
    """Load a public function when it is first used."""
    from importlib import import_module

    if name in _DEFINED_IN:
        return getattr(import_module(_DEFINED_IN[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
