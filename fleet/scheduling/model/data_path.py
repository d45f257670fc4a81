"""The samples per second that preprocessors make, with trainers that help (FLEET, MLSys'20, Appendix B.3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Feed:
    """How fast preprocessors make what a job reads, if they make nothing else: samples/s of its stream.

    Attributes:
        data: its data set; what is kept of it serves all jobs with the same.
        first: as long as nothing of it is kept.
        later: once all is kept that there is room for.
        passing: samples of the stream that go by for each of its own.
    """

    data: str
    first: float
    later: float
    passing: float = 1.0

    @property
    def own(self) -> float:
        """Samples/s of the job itself, once all is kept that there is room for."""
        return self.later / self.passing


@dataclass(frozen=True)
class DataPath:
    """The measured speed of a run's preprocessors.

    Attributes:
        together: number of preprocessors -> samples/s that so many make at the same time, the data sets in turn; the
            largest number is that of all there are.
        of_data: data set -> samples/s that all of them make of it alone, once what there is room for is kept.
        of_new: the same while nothing is kept; as `of_data` where it is not told.

    Raises:
        ValueError: nothing was measured, or a number of preprocessors below 1.
    """

    together: Mapping[int, float]
    of_data: Mapping[str, float] = field(default_factory=dict)
    of_new: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.together or min(self.together) < 1:
            raise ValueError(f"preprocessors were measured as {dict(self.together)}; their numbers begin at 1")

    @classmethod
    def of(
        cls, counts: Mapping[int, float], of_data: Mapping[str, float], of_new: Mapping[str, float]
    ) -> DataPath | None:
        """What was measured of preprocessors; None: nothing was."""
        known = {count: rate for count, rate in counts.items() if rate > 0}
        later, first = ({data: rate for data, rate in each.items() if rate > 0} for each in (of_data, of_new))
        return cls(known, later, first) if known else None

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

    def on(self, count: int) -> DataPath:
        """What so many preprocessors would make; more of them than were measured, as much each as these."""
        part = self.made_by(count) / self.made_by(self.most) if count < self.most else count / self.most
        together = {known: rate for known, rate in self.together.items() if known < count}
        of_data, of_new = ({data: rate * part for data, rate in told.items()} for told in (self.of_data, self.of_new))
        return DataPath({**together, count: self.made_by(self.most) * part}, of_data, of_new)

    def needed(self, demand: float) -> int:
        """The fewest preprocessors that make so many samples/s; all of them where none do."""
        enough = (count for count in range(1, self.most + 1) if self.made_by(count) >= demand)
        return next(enough, self.most)

    def feeds(self, data: str) -> float:
        """Samples/s that a job with that data gets at most; infinite: nobody knows."""
        return self.of_data.get(data, math.inf)

    def feed_of(self, data: str, passing: float = 1.0) -> Feed | None:
        """What a job with that data gets, which takes one of `passing` samples of its stream; None: nobody knows."""
        if data not in self.of_data:
            return None
        later = self.of_data[data]
        return Feed(data, min(self.of_new.get(data, later), later), later, passing)


def demand_of(streams: Iterable[tuple[object, float]]) -> float:
    """Samples/s that jobs eat which train now: those that read one stream eat it at the pace of the fastest at most.

    Args:
        streams: what each job reads, equal for those that read together, and its pace, samples/s.
    """
    fastest: dict[object, float] = {}
    for stream, pace in streams:
        fastest[stream] = max(pace, fastest.get(stream, 0.0))
    return sum(fastest.values())


@dataclass(frozen=True)
class Lending:
    """How many trainers may prepare samples.

    Attributes:
        preprocessors: ranks that always do.
        most: trainers that may at the same time; 0: none.

    Raises:
        ValueError: no preprocessor, or fewer trainers than none.
    """

    preprocessors: int = 1
    most: int = 0

    def __post_init__(self) -> None:
        if self.preprocessors < 1 or self.most < 0:
            raise ValueError(f"{self}: there is one preprocessor at least, and no fewer than 0 trainers that help")

    def times(self, lent: int) -> float:
        """How many times what preprocessors make alone comes out with so many trainers, each as fast as one of them."""
        return 1 + lent / self.preprocessors


NONE = Lending()
"""No trainer may."""
