"""The values of a trial as people read them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fleet.report.wording import printable


def shown_value(value: Any) -> str:
    """A parameter's value as people read it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return printable(value if isinstance(value, str) else json.dumps(value))


def told_values(values: Mapping[str, Any]) -> str:
    """lr 0.01, widths [8, 16]: values by the last part of their path, by the whole path where that is not enough."""
    last = Counter(path.rpartition(".")[2] for path in values)
    short = {path: path.rpartition(".")[2] for path in values}
    return ", ".join(
        f"{short[path] if last[short[path]] == 1 else path} {shown_value(value)}" for path, value in values.items()
    )
