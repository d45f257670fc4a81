"""Searches: what it costs that they are the same on any number of devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.searched import coordinating, deciding, prefetching, virtual_time
from benchmarks.searched.peers import measuring as peers

Figures = dict[str, Any]
PARTS: dict[str, Callable[[int], Figures]] = {
    "virtual_time": virtual_time.measure,
    "deciding": deciding.measure,
    "coordinating": coordinating.measure,
    "prefetch": prefetching.measure,
    "peers": peers.measure,
}
"""Name -> what measures it, given how often (0: its own number); returns lists of "bars", "tables" and "notes"."""


def main(repetitions: int = 0, parts: str = "") -> Figures:
    """Measure the parts that are named, with commas between; all by default."""
    result: Figures = {"bars": [], "tables": [], "notes": []}
    for name in parts.split(",") if parts else PARTS:
        if name not in PARTS:
            raise SystemExit(f"the benchmark search has no part {name!r}; it has: {', '.join(PARTS)}")
        found = PARTS[name](repetitions)
        for kind, figures in result.items():
            figures += found.get(kind, [])
    return result
