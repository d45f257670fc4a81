"""JSON that every reader takes: Python alone reads NaN and Infinity."""

from __future__ import annotations

import json
import math
from typing import Any


def strict_json(value: Any, **options: Any) -> str:
    """The value as JSON; numbers that are not finite become null. options: those of `json.dumps`."""
    return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
