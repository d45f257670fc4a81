"""Devices that nobody has reserved now, to those whom they help most."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.scheduling.reservations.speed_levels import SpeedLevels


@dataclass(frozen=True)
class FirmShare:
    """The devices that a job has for sure, and how far more would help it.

    Attributes:
        name: the job's name.
        levels: its speeds.
        reserved: devices that it has in any case.
        held: devices that it has now.
        samples: samples that it must still train.
        restart: seconds that getting other devices costs.
        worth: samples/s for which it would pay one device-second later on.
    """

    name: str
    levels: SpeedLevels
    reserved: int
    held: int
    samples: float
    restart: float
    worth: float

    def value(self, level: int) -> float:
        """Device-seconds that each further device saves a second, from `level` to the next."""
        return self.levels.steps[level][1] / self.worth

    def pays(self, count: int) -> bool:
        """Whether moving from the devices held now to so many saves more than twice what it costs."""
        slow, fast = self.levels.rate(self.held), self.levels.rate(count)
        return fast > slow and self.samples * (1 / slow - 1 / fast) > 2 * self.restart


def share_spare(shares: Sequence[FirmShare], spare: int) -> dict[str, int]:
    """Job -> its devices: the reserved ones, and more, given in the order of their savings as long as there are any.

    Where moving costs time, a running job keeps its devices as far as possible, and moves only if that pays.

    Args:
        shares: the shares of all jobs; the first goes first where two would save the same.
        spare: devices beyond the reserved ones.
    """
    counts = {share.name: share.reserved for share in shares}
    moving = [share for share in shares if share.restart and share.held > share.reserved]
    for share in sorted(moving, key=lambda share: -share.value(max(0, share.levels.level(share.held) - 1))):
        if share.held - share.reserved <= spare:
            counts[share.name] = share.held
            spare -= share.held - share.reserved
    spare = _climb(shares, counts, spare)
    for share in shares:
        count = counts[share.name]
        if share.restart and share.reserved <= share.held < count and share.held and not share.pays(count):
            counts[share.name] = share.held
            spare += count - share.held
    _climb([share for share in shares if not share.held], counts, spare)
    return counts


def _climb(shares: Sequence[FirmShare], counts: dict[str, int], spare: int) -> int:
    """Give devices level by level, the most valuable first; return the number left over."""
    heap: list[tuple[float, int, int]] = []
    for index, share in enumerate(shares):
        level = share.levels.level(counts[share.name])
        if level < len(share.levels.steps):
            heap.append((-share.value(level), index, level))
    heapq.heapify(heap)
    while heap and spare:
        _, index, level = heap[0]
        share = shares[index]
        devices = share.levels.steps[level][0] - counts[share.name]
        if devices <= spare:
            counts[share.name] += devices
            spare -= devices
            level += 1
            if level < len(share.levels.steps):
                heapq.heapreplace(heap, (-share.value(level), index, level))
                continue
        heapq.heappop(heap)
    return spare
