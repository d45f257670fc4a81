"""What the data path can feed: how many samples per second preprocessors make (FLEET, MLSys'20, Appendix B.3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DataPath:
    """The measured speed of a run's preprocessors.

    Attributes:
        together: number of preprocessors -> samples/s that so many make at the same time, the data sets in turn; the
            largest number is that of all there are.
        of_data: data set -> samples/s that all of them make of it alone.

    Raises:
        ValueError: nothing was measured, or a number of preprocessors below 1.
    """

    together: Mapping[int, float]
    of_data: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.together or min(self.together) < 1:
            raise ValueError(f"preprocessors were measured as {dict(self.together)}; their numbers begin at 1")

    @property
    def most(self) -> int:
        """All preprocessors that there are."""
        return max(self.together)

    def made_by(self, count: int) -> float:
        """Samples/s of so many preprocessors; linear from none on, between the numbers that were measured."""
        least = min(self.together)
        if count < least:
            return self.together[least] * count / least
        below = max(known for known in self.together if known <= count)
        above = min((known for known in self.together if known >= count), default=self.most)
        if above <= below:
            return self.together[below]
        share = (count - below) / (above - below)
        return self.together[below] + share * (self.together[above] - self.together[below])

    def limited_to(self, count: int, data: Iterable[str]) -> DataPath:
        """What so many preprocessors make of these data sets, each as fast as any."""
        together = {known: rate for known, rate in self.together.items() if known < count}
        made = self.made_by(count)
        return DataPath({**together, count: made}, dict.fromkeys(data, made))

    def needed(self, demand: float) -> int:
        """The fewest preprocessors that make so many samples/s; all of them where none do."""
        enough = (count for count in range(1, self.most + 1) if self.made_by(count) >= demand)
        return next(enough, self.most)

    def feeds(self, data: str) -> float:
        """Samples/s that a job with that data gets at most; infinite: nobody knows."""
        return self.of_data.get(data, math.inf)


def demand_of(streams: Iterable[tuple[object, float]]) -> float:
    """Samples/s that jobs eat which train now: those that read one stream eat it at the pace of the fastest at most.

    Args:
        streams: what each job reads, equal for those that read together, and its pace, samples/s.
    """
    fastest: dict[object, float] = {}
    for stream, pace in streams:
        fastest[stream] = max(pace, fastest.get(stream, 0.0))
    return sum(fastest.values())
