"""The lanes of the rings that are open, and who reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fleet.coordination.crew import Crew
from fleet.coordination.executor import Start
from fleet.coordination.kept_epochs import KeptEpochs
from fleet.coordination.lane_mates import Mates
from fleet.coordination.protocol import CloseLane, OpenLane
from fleet.coordination.samples_made import SampleCounter
from preprocess.samples.stream import LaneSpec, StreamKey


@dataclass(frozen=True)
class StreamPlace:
    """Where a job's next samples lie: jobs with an equal `key` can read one lane, from the smallest `place` on."""

    key: StreamKey
    place: int  # in the epoch's order


class LaneMaker(Protocol):
    """Knows the jobs' data."""

    def place_of(self, job: str, epoch: int, step: int) -> StreamPlace:
        """Where the job's samples at (epoch, step) lie."""

    def lane(
        self, number: int, first: StreamPlace, jobs: Mapping[str, int | None], readers: tuple[int, ...]
    ) -> LaneSpec:
        """The lane of that number which begins at `first`, read by these ranks, for these jobs; each with the epochs
        after which it pauses, None: it reads until it is done.
        """

    def samples_between(self, job: str, begin: tuple[int, int], end: tuple[int, int]) -> int:
        """How many samples the job reads from one (epoch, step) to another: the training samples of its steps, and the
        held-out ones of each epoch that it finishes.
        """


class OpenLanes:
    """Opens lanes on every node, and closes those that nobody reads any more.

    Args:
        crew: is told of them.
        maker: makes them.
        count: how many the rings have.
        mates: says who of those at unlike places of a stream reads together; None: all do.
        kept: has preprocessors drop what nobody reads any more; None: they find that out as lanes open.

    Attributes:
        samples: what was made for them and read there.
    """

    def __init__(
        self, crew: Crew, maker: LaneMaker, count: int, mates: Mates | None = None, kept: KeptEpochs | None = None
    ) -> None:
        self._crew, self._maker, self._mates, self._kept = crew, maker, mates, kept
        self._free = deque(range(count))
        self._jobs: dict[int, set[str]] = {}  # lane -> who reads it
        self._data: dict[int, str] = {}  # lane -> its data set
        self.samples = SampleCounter()

    @property
    def spare(self) -> int:
        """How many lanes can be opened beside one that closes."""
        return len(self._free) - 1

    def open_for(self, batch: Sequence[Start], share: bool) -> list[tuple[Start, LaneSpec]]:
        """Open lanes for the jobs of an allocation, in the order of the lanes; those who read together have one.

        Jobs at one place of a stream do, and those at others if the mates say so, or where the rings have no lane more.
        """
        together: dict[object, list[tuple[Start, StreamPlace]]] = {}
        for start in batch:
            place = self._maker.place_of(start.job, start.epoch, start.step)
            together.setdefault((place.key, start.lane) if share else start.job, []).append((start, place))
        opened = []
        for readers in self._divided(list(together.values())):
            lane = self._open([start for start, _ in readers], [place for _, place in readers])
            opened += [(start, lane) for start, _ in readers]
        return opened

    def _divided(self, classes: Sequence[list[tuple[Start, StreamPlace]]]) -> Iterator[list[tuple[Start, StreamPlace]]]:
        """Those of each lane, of the jobs that may read together; each class has a lane at least."""
        spare = len(self._free) - len(classes)
        for readers in classes:
            starts, places = [start for start, _ in readers], [place.place for _, place in readers]
            found = [list(range(len(readers)))]
            if self._mates is not None and len(readers) > 1:
                found = self._mates.divided(starts, places, spare + 1)
            spare -= len(found) - 1
            yield from ([readers[index] for index in members] for members in found)

    def _open(self, starts: list[Start], places: list[StreamPlace]) -> LaneSpec:
        """Open a lane that begins where the rearmost of its jobs stands."""
        number = self._free.popleft()
        readers = tuple(rank for start in starts for rank in self._crew.ranks_of(start.devices))
        first = replace(places[0], place=min(place.place for place in places))
        jobs = self._jobs[number] = {start.job for start in starts}
        lane = self._maker.lane(number, first, {start.job: start.until for start in starts}, readers)
        # Where each preprocessor has samples of its own all of them work: nobody else keeps these.
        wanted = 0 if lane.divided else max(start.makers for start in starts) or self._crew.share(len(readers))
        lent = {} if lane.divided else {device: None for start in starts for device in start.prepared_by}
        lane = replace(lane, makers=self._crew.makers(wanted, lent))
        self._data[number] = lane.stream.data
        told = self._crew.tell_of_lane(OpenLane(lane))
        if self._kept is not None:
            self._kept.opened(lane, jobs, told)
        return lane

    def look(self) -> None:
        """Have preprocessors drop what nobody reads any more, by what the books say now."""
        if self._kept is not None:
            self._kept.look()

    def leave(self, number: int, job: str, begin: tuple[int, int], end: tuple[int, int]) -> None:
        """A job reads there no more; it has read from one (epoch, step) to another."""
        self.samples.read(self._data[number], self._maker.samples_between(job, begin, end))
        self._jobs[number].discard(job)
        if not self._jobs[number]:
            del self._jobs[number]
            self.samples.closed(self._crew.tell_of_lane(CloseLane(number)))
            if self._kept is not None:
                self._kept.closed(number)
            self._free.append(number)  # a later opening has a later generation, and waits on each node for this end
