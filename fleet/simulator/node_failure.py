"""A node that fails in a simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class NodeFailure:
    """A node that fails at `time` and works again at `until`, seconds since the first arrival."""

    time: float
    node: int
    until: float = math.inf
