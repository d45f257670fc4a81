"""How much of a stream crossed the network, in one direction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """Slots that crossed the network, and the bytes of their samples; what MPI and the network add is not in it."""

    slots: int = 0
    bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.slots + other.slots, self.bytes + other.bytes)


class TrafficCounter:
    """Adds traffic up by (lane, other side). One thread counts; others may look."""

    def __init__(self) -> None:
        self._totals: dict[tuple[int, int], Traffic] = {}

    def count(self, lane: int, other: int, size: int) -> None:
        """Add one slot of `size` bytes."""
        before = self._totals.get((lane, other), Traffic())
        self._totals[lane, other] = before + Traffic(1, size)

    @property
    def totals(self) -> Mapping[tuple[int, int], Traffic]:
        """The counts so far, by (lane, other side)."""
        return dict(self._totals)
