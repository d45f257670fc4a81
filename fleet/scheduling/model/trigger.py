"""When a policy is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass

_ROUNDING = 1e-9  # of an interval: so much before its end counts as its end


def last_multiple(interval: float, now: float) -> float:
    """The last multiple of `interval` that is not after `now`."""
    return math.floor(now / interval + _ROUNDING) * interval


@dataclass(frozen=True)
class Trigger:
    """Ask at each event, or at the ends of intervals, or sooner once enough has happened.

    Args:
        interval: seconds; events wait for the next multiple of it, counted from the run's begin. 0: none waits.
        events: with an interval, ask at once when so many events wait (Saxena et al., 2020: hybrid
            trigger); 0: never.

    Raises:
        ValueError: a negative number.
    """

    interval: float = 0.0
    events: int = 0

    def __post_init__(self) -> None:
        if not self.interval >= 0 or not self.events >= 0:
            raise ValueError(f"interval is {self.interval} s and events is {self.events}; both must be 0 or more")

    def due(self, now: float, waiting: int, urgent: bool = False) -> float:
        """When to ask next, where `waiting` events have happened since the last time, the latest now.

        Args:
            urgent: one of them is the arrival of a guaranteed job, which does not wait.
        """
        if not waiting:
            return math.inf
        if not self.interval or urgent or (self.events and waiting >= self.events):
            return now
        return math.ceil(now / self.interval - _ROUNDING) * self.interval

    def next_end(self, now: float) -> float:
        """The end of the interval in which `now` lies, or of the next where one ends now. There is an interval."""
        return (math.floor(now / self.interval + _ROUNDING) + 1) * self.interval
