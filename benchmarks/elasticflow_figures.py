"""ElasticFlow's Figures 9 to 12 again: sizes, pieces taken away, efficiency, best-effort jobs, what scaling costs.

Figures 9 to 11 are simulated, on jobs drawn as the authors draw theirs and with their rates, which FLEET_TRACES leads
to. Moves of Figure 12 are measured, on this machine's processors.
"""

from __future__ import annotations

from typing import Any

from benchmarks.simulate import collected

PARTS = ("sizes", "efficiency", "best_effort", "scaling_costs")


def main(repetitions: int = 0) -> dict[str, Any]:
    """Measure every figure; `repetitions` draws of deadlines, and moves of each kind, each part's own number if 0.

    Returns:
        {"bars": [...], "tables": [...], "notes": [...], "seconds": {part: wall seconds}}
    """
    return collected("benchmarks.figures", PARTS, repetitions)
