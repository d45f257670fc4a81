"""Sia (SOSP'23) and ahead of it: kinds of device and batches, on the authors' workloads; one part a question.

The workloads are not in this repository: FLEET_TRACES names the folder that holds them, in traces/sia.
"""

from __future__ import annotations

from typing import Any

from benchmarks.heterogeneous.workloads import ABSENT, folder
from benchmarks.simulate import collected

PARTS = ("decisions", "reference", "ties", "ahead")


def main(repetitions: int = 0, parts: str = "") -> dict[str, Any]:
    """Measure the parts that are named, with commas between; all by default.

    Returns:
        As `benchmarks.simulate.main`; without the data a note alone.
    """
    chosen = parts.split(",") if parts else list(PARTS)
    for name in chosen:
        if name not in PARTS:
            raise SystemExit(f"the benchmark sia has no part {name!r}; it has: {', '.join(PARTS)}")
    if folder() is None:
        return {"bars": [], "tables": [], "notes": [f"skipped: {ABSENT}"], "seconds": {}}
    return collected("benchmarks.heterogeneous", chosen, repetitions)
