"""From trained networks to a model in use, and a run that people can see: each part's figures beside its bar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import predicting, status

Figures = dict[str, Any]
PARTS: dict[str, Callable[[int], Figures]] = {"status": status.measure, "predict": predicting.measure}
"""Name -> what measures it, given how often (0: its own number); returns {"bars": [...], "tables": [...]}."""


def main(repetitions: int = 0, parts: str = "") -> Figures:
    """Measure the parts that are named, with commas between; all by default."""
    result: Figures = {"bars": [], "tables": []}
    for name in parts.split(",") if parts else PARTS:
        if name not in PARTS:
            raise SystemExit(f"the benchmark harvest has no part {name!r}; it has: {', '.join(PARTS)}")
        found = PARTS[name](repetitions)
        result["bars"] += found["bars"]
        result["tables"] += found["tables"]
    return result
