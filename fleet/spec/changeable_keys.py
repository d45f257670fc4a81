"""The keys of a job that can change while it trains."""

from __future__ import annotations

OPTIMIZER = "optimizer.arguments."
"""How their paths begin."""
_FIXED = ("amsgrad", "centered", "foreach", "fused", "capturable", "differentiable", "maximize")


def can_change(path: str) -> bool:
    """Whether the key at this path can change while its job trains."""
    name = path.removeprefix(OPTIMIZER)
    return path.startswith(OPTIMIZER) and "." not in name and name not in _FIXED
