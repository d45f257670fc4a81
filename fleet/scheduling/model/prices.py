"""What devices cost by the hour, kind by kind, as time goes on: spot prices."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

Course = tuple[tuple[float, float], ...]
"""(second of the run, price of a device-hour from then on), by second; the first is at 0."""


@dataclass(frozen=True)
class Prices:
    """The prices of a machine's devices, and what makes them worth it.

    Attributes:
        by_kind: kind of device -> its price in the course of the run; "" where all are alike.
        worth: what an hour of a device of the kind on which a job trains fastest is worth, in the prices' unit;
            infinite: devices are used whatever they cost.

    Raises:
        ValueError: a course that does not begin at 0 or does not ascend, or a negative price or worth.
    """

    by_kind: Mapping[str, Course] = field(default_factory=dict)
    worth: float = math.inf

    def __post_init__(self) -> None:
        for kind, course in self.by_kind.items():
            seconds = [second for second, _ in course]
            if not seconds or seconds[0] != 0 or any(b <= a for a, b in zip(seconds, seconds[1:])):
                raise ValueError(f"the prices of {kind!r} are told for {seconds} s; begin at 0, and ascend")
            if not all(math.isfinite(price) and price >= 0 for _, price in course):
                raise ValueError(f"the prices of {kind!r} are {[price for _, price in course]}; none may be below 0")
        if not self.worth > 0:
            raise ValueError(f"worth is {self.worth}; it must be above 0")

    def at(self, kind: str, now: float) -> float:
        """The price of a device-hour; 0 where none is told."""
        course = self.by_kind.get(kind, ((0.0, 0.0),))
        return course[max(0, bisect_right(course, (now, math.inf)) - 1)][1]

    def next_change(self, now: float) -> float:
        """When the next price changes; infinite: none does any more."""
        return min(
            (second for course in self.by_kind.values() for second, _ in course if second > now), default=math.inf
        )
