"""What a number means: metrics, losses, schedules, data, searches and tasks, held against plain torch and by name."""

from __future__ import annotations

import importlib
from typing import Any

SUBJECTS = ("metrics", "losses", "schedules", "fingerprints", "searches", "splits", "tasks")


def main(repetitions: int = 0, parts: str = "") -> dict[str, Any]:
    """Measure the bars of all subjects.

    Args:
        repetitions: not looked at: a number is right or wrong.
        parts: some of SUBJECTS, with commas; all by default.

    Returns:
        {"bars": [{"name", "value", "bar", "ok"}, ...]}
    """
    chosen = parts.split(",") if parts else SUBJECTS
    return {"bars": [bar for each in chosen for bar in importlib.import_module(f"benchmarks.numbered.{each}").bars()]}
