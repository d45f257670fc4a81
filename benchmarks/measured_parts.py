"""A benchmark of several parts: those that are named are measured one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Figures = dict[str, Any]
Part = Callable[[int], Figures]
"""Measures something, given how often (0: its own number); returns lists of "bars", "tables" and "notes"."""


def measured(
    benchmark: str, known: Mapping[str, Part], repetitions: int, parts: str, asked: Mapping[str, Part] | None = None
) -> Figures:
    """Return the figures of the parts that are named, with commas between, together; of all known ones by default.

    asked: more parts, which are measured only where they are named.

    Raises:
        SystemExit: there is no part of a name.
    """
    result: Figures = {"bars": [], "tables": [], "notes": []}
    chosen, known = (parts.split(",") if parts else list(known)), {**known, **(asked or {})}
    for name in chosen:
        if name not in known:
            raise SystemExit(f"the benchmark {benchmark} has no part {name!r}; it has: {', '.join(known)}")
    for name in chosen:
        found = known[name](repetitions)
        for kind, figures in result.items():
            figures += found.get(kind, [])
    return result
