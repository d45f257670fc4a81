"""What one job is promised over time, and what it gets now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from fleet.scheduling.elasticflow.shares import NOTHING, Levels, MinimumShare
from fleet.scheduling.model.arrays import Counts

NO_DEVICES: Counts = np.zeros(0, np.int64)
NEVER = 1 << 62
"""A slot that never comes."""

Step = tuple[float, float, str, int, int, "PromisedJob"]
"""One level more for a job: minus what it returns, deadline, name, level, further devices, and what it is promised."""


@dataclass(eq=False)
class PromisedJob:
    """One job's promise, and its devices of now.

    Attributes:
        name: the job's name.
        levels: levels that it may have.
        deadline: the job's deadline, seconds; infinite: none.
        restart: seconds of the job's restart.
        share: its promise.
        devices: the same as devices by slot; int64.
        top: number of the highest level that it is promised in any slot; 0: it is promised nothing.
        target: number of the level that it gets now.
        steps: it may climb these, and the level k for which they are, see `Levels.returns`; 0: there are none.
    """

    name: str
    levels: Levels
    deadline: float
    restart: float
    share: MinimumShare = NOTHING
    devices: Counts = field(default_factory=lambda: NO_DEVICES)
    top: int = 0
    target: int = 0
    steps: list[Step] = field(default_factory=list)
    climbs: int = 0
    _now: tuple[int, int] = (-1, 0)
    _rise: tuple[int, int] = (-1, -1)

    def promise(self, share: MinimumShare) -> None:
        """This from now on."""
        numbers = share.array
        self.share, self.devices = share, self.levels.devices[numbers]
        self._now, self._rise = (-1, 0), (-1, -1)
        self.top = int(numbers.max(initial=0))

    def level(self, slot: int) -> int:
        """What it is promised in that slot: the number of a level."""
        asked, level = self._now
        if asked != slot:
            first, numbers, _ = self.share
            level = numbers[slot - first] if 0 <= slot - first < len(numbers) else 0
            self._now = slot, level
        return level

    def next_rise(self, slot: int) -> int:
        """The first slot after this one in which it is promised more than `target`; NEVER if none."""
        if self.top <= self.target:
            return NEVER
        target, found = self._rise
        if target != self.target or found <= slot:
            begin = max(0, slot + 1 - self.share.first)
            above = (self.share.array[begin:] > self.target).nonzero()[0]
            found = self.share.first + begin + int(above[0]) if len(above) else NEVER
            self._rise = self.target, found
        return found


def climb(steps: Iterable[Step], left: int) -> int:
    """Raise targets by these steps in their order, until no device is left or none helps; how many are left then."""
    for _, _, _, level, devices, claim in steps:
        if devices <= left and claim.target == level - 1:
            claim.target = level
            left -= devices
            if not left:
                break
    return left
