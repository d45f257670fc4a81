"""Devices that are slower than they should be, and are lost."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from fleet.search import Search, Segment


def train_on(search: Search, value: Callable[[int, int], float | None], devices: int, seed: int) -> int:
    """Train until the search is over, and return how many segments were lost.

    Each segment takes a drawn time on one device; some devices train what is needed, some what is ahead; a segment in
    six is lost with its device and must be trained again.

    Args:
        value: (trial, epoch) -> result.
        devices: how many.
        seed: of all draws.
    """
    draw = random.Random(seed)
    running: list[tuple[float, int, Segment, bool]] = []
    clock, number, lost = 0.0, 0, 0
    while not search.is_over:
        while len(running) < devices:
            under_way = {segment for _, _, segment, _ in running}
            free = [segment for segment in search.needed() if segment not in under_way]
            free += [segment for segment in search.ahead() if segment not in under_way] if draw.random() < 0.8 else []
            if not free:
                break
            segment = free[0] if draw.random() < 0.7 else draw.choice(free)
            end = clock + (segment.end - segment.start) * draw.lognormvariate(0, 1)
            number += 1
            heapq.heappush(running, (end, number, segment, draw.random() < 1 / 6))
        clock, _, segment, is_lost = heapq.heappop(running)
        lost += is_lost
        if not is_lost:
            search.tell(segment.trial, segment.end, value(segment.trial, segment.end))
    return lost
