"""From trained networks to a model in use, and a run that people can see: each part's figures beside its bar."""

from __future__ import annotations

from benchmarks import predicting, status
from benchmarks.measured_parts import Figures, Part, measured

PARTS: dict[str, Part] = {"status": status.measure, "predict": predicting.measure}


def main(repetitions: int = 0, parts: str = "") -> Figures:
    """Measure the parts that are named, with commas between; all by default."""
    return measured("harvest", PARTS, repetitions, parts)
