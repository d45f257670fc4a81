"""fleet: train an ensemble of different networks in one MPI job, each with the bits it would have had alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.run.harvest.load import load

__all__ = ["load"]
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """Load what needs torch when it is first used."""
    if name == "load":
        from fleet.run.harvest.load import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
