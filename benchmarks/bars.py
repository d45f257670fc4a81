"""What a benchmark holds its figures against."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

Bar = dict[str, Any]


def bar(name: str, value: float, wanted: str, ok: bool) -> Bar:
    """A figure, what it should be, and whether it is."""
    return {"name": name, "value": value, "bar": wanted, "ok": bool(ok)}


def at_most(name: str, value: float, most: float, unit: str = "") -> Bar:
    """A figure that should not be larger."""
    return bar(name, value, f"<= {most:g}{unit}", value <= most)


def median_bar(name: str, values: Sequence[float], wanted: str, ok: bool) -> Bar:
    """The median of repetitions, with the least and the most beside it."""
    return {**bar(name, round(statistics.median(values), 4), wanted, ok), "spread": [min(values), max(values)]}


def add_median(result: dict[str, Any], name: str, values: Sequence[float], wanted: str, ok: bool) -> None:
    """The same, put with the other bars of a benchmark's result."""
    result["bars"].append(median_bar(name, values, wanted, ok))
