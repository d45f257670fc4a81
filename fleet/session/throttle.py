"""Does a task that is often asked for so seldom that it takes a small part of the time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

PART = 0.002


@dataclass
class Seldom:
    """Calls `action` unless its last call was so short a time ago that calls would take more than `part` of the time.

    A caller that needs the last of the calls makes it directly.
    """

    action: Callable[[], None]
    part: float = PART
    clock: Callable[[], float] = time.monotonic
    _next: float = field(default=-math.inf, init=False)

    def __call__(self) -> None:
        begin = self.clock()
        if begin >= self._next:
            self.action()
            end = self.clock()
            self._next = end + (end - begin) / self.part
