"""Population-based training: what a copy of weights takes, and a population beside a plain loop that trains one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.searched import copying, populating

Figures = dict[str, Any]
PARTS: dict[str, Callable[[int], Figures]] = {"copying": copying.measure, "populating": populating.measure}
"""Name -> what measures it, given how often (0: its own number); returns lists of "bars", "tables" and "notes"."""


def main(repetitions: int = 0, parts: str = "") -> Figures:
    """Measure the parts that are named, with commas between; all by default."""
    result: Figures = {"bars": [], "tables": [], "notes": []}
    for name in parts.split(",") if parts else PARTS:
        if name not in PARTS:
            raise SystemExit(f"the benchmark populations has no part {name!r}; it has: {', '.join(PARTS)}")
        found = PARTS[name](repetitions)
        for kind, figures in result.items():
            figures += found.get(kind, [])
    return result
