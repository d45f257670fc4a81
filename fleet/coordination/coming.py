"""What a plan starts once its devices are free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.scheduling.model.state import Allocation


@dataclass(frozen=True)
class Coming:
    """What a plan starts once its devices are free.

    Attributes:
        devices: job -> those that it gets.
        lanes: who of them reads together.
        batches: who of them has another batch than its own.
        keys: what the journal says of the plan, of the event `Planned`.
    """

    devices: Allocation = field(default_factory=dict)
    lanes: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
