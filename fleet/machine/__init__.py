"""The machine under a run: ranks, nodes and devices, launchers, signals. Batch systems are in `fleet.cluster`."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "BatchSystem":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fleet.cluster import BatchSystem

    return BatchSystem
