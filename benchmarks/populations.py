"""Population-based training: what a copy of weights takes, and a population beside a plain loop that trains one."""

from __future__ import annotations

from benchmarks.measured_parts import Figures, Part, measured
from benchmarks.searched import copying, populating

PARTS: dict[str, Part] = {"copying": copying.measure, "populating": populating.measure}


def main(repetitions: int = 0, parts: str = "") -> Figures:
    """Measure the parts that are named, with commas between; all by default."""
    return measured("populations", PARTS, repetitions, parts)
