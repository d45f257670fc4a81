"""The lanes of the rings that are open, and who reads them."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fleet.coordination.live_state import LiveState
from fleet.coordination.protocol import CloseLane, OpenLane, SamplesMade, Start, StreamAwaited
from fleet.coordination.worker_channel import WorkerChannel
from fleet.journal.state import SampleCounts
from fleet.scheduling.model.jobs import JobState
from preprocess.samples.stream import LaneSpec, StreamKey
from preprocess.sharing.joining import PreparingCosts, Reader, lanes


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
        self,
        crew: WorkerChannel,
        maker: LaneMaker,
        count: int,
        mates: Mates | None = None,
        kept: KeptEpochs | None = None,
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
            together.setdefault((place.key, start.lane_group) if share else start.job, []).append((start, place))
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


class Mates(Protocol):
    """Says who of a class reads together."""

    def divided(self, starts: Sequence[Start], places: Sequence[int], most: int) -> list[list[int]]:
        """Divide jobs that start together in one stream, each at its place, among so many lanes at most."""


class LaneMates:
    """Divides the starts of a run by what its books know.

    Args:
        state: knows paces, how long jobs train, and how fast preprocessors are.
    """

    def __init__(self, state: LiveState) -> None:
        self._state = state

    def divided(self, starts: Sequence[Start], places: Sequence[int], most: int) -> list[list[int]]:
        """Divide jobs that start together in one stream, each at its place, among so many lanes at most."""
        data, path = self._state.jobs[starts[0].job].state.data, self._state.data_path
        made = math.inf if path is None else path.feeds(data) * self._state.helpers.times
        return divided(list(map(self._reader, starts, places)), made, most)

    def _reader(self, start: Start, place: int) -> Reader | None:
        job = self._state.jobs[start.job]
        pace = 0.0 if job.guessed else min(self._state.pace(job.name, start.devices), self._state.feeds(job.name))
        return reader_of(job.state, place, len(start.devices), pace)


def reader_of(job: JobState, place: float, devices: int, rate: float) -> Reader | None:
    """A job as a reader of its stream; None where its pace or the end of its epoch is not known.

    Args:
        job: who knows no last epoch counts until the end of this one.
        place: its next sample stands there in the stream.
        devices: how many it has from now on.
        rate: samples/s that it trains there.
    """
    if job.remaining < math.inf:
        end = place + job.remaining * job.passing
    else:
        end = max(place, job.epoch * job.passing)
    return Reader(place, end, devices, rate * job.passing) if rate and (job.epoch or job.remaining < math.inf) else None


def divided(readers: Sequence[Reader | None], made: float, most: int | None = None) -> list[list[int]]:
    """Divide jobs that may read one lane; all read one where something is not known.

    Args:
        readers: each at its place, on the devices that it will have.
        made: samples/s of the stream that all preprocessors make; infinite: nobody knows.
        most: lanes that there are; None: enough.

    Returns:
        The indices of those of each lane, in their order.
    """
    known = [reader for reader in readers if reader is not None]
    if len(known) < len(readers) or made == math.inf:
        return [list(range(len(readers)))]
    costs = PreparingCosts(1 / made, 1 / made, 1.0)  # what is kept is counted in what all make
    found = lanes(known, costs, max(1, len(known) if most is None else most))
    return sorted(sorted(members) for members in found)


_NOTHING = None, frozenset[int]()


class KeptEpochs:
    """Knows what preprocessors were told of each stream whose samples they may keep.

    Args:
        crew: is told.
        awaited: knows which epochs come again.
    """

    def __init__(self, crew: WorkerChannel, awaited: AwaitedEpochs) -> None:
        self._crew, self._awaited = crew, awaited
        self._streams: dict[str, _Stream] = {}  # those of which anything may be kept
        self._changed: set[str] = set()
        self._lanes: dict[int, str] = {}  # open ones -> the stream that each carries

    def opened(self, lane: LaneSpec, jobs: Collection[str], makers: Collection[int]) -> None:
        """A lane is opened for these jobs, and these ranks that fill it are told what others await."""
        name = self._lanes[lane.lane] = name_of(lane.stream)
        if name in self._streams:
            self._changed.add(name)
        stream = self._streams.setdefault(name, _Stream(lane.stream))
        stream.makers.update(makers)
        stream.readers[lane.lane] = jobs
        stream.told = lane.awaited_from, frozenset([lane.lane])

    def closed(self, number: int) -> None:
        """All readers have left a lane."""
        name = self._lanes.pop(number)
        del self._streams[name].readers[number]
        self._changed.add(name)

    def look(self) -> None:
        """Tell what is new since the last look: a lane was opened or closed, or a job reads no more."""
        changed, self._changed = self._changed | self._awaited.take_gone(), set()
        for name in sorted(changed & self._streams.keys()):
            stream = self._streams[name]
            waiting, reading = self._awaited.of(name, stream.readers)
            now = waiting, frozenset(reading)
            if now != stream.told:
                word = StreamAwaited(stream.key.data, stream.key.seed, waiting, reading)
                self._crew.tell_preprocessors(stream.makers, word)
                stream.told = now
            if now == _NOTHING and not stream.readers:
                del self._streams[name]


@dataclass
class _Stream:
    """A stream whose samples preprocessors may keep.

    Attributes:
        makers: ranks that have filled lanes of it: nobody else keeps any of its samples.
        readers: open lane -> the jobs that read it.
        told: the first epoch that is awaited outside of lanes, and the lanes that read on.
    """

    key: StreamKey
    makers: set[int] = field(default_factory=set)
    readers: dict[int, Collection[str]] = field(default_factory=dict)
    told: tuple[int | None, frozenset[int]] = _NOTHING


class AwaitedEpochs:
    """Tells from the run's books which epochs come again.

    Args:
        state: knows where each job stands.
        searches: trials may come, which begin at the first epoch.
    """

    def __init__(self, state: LiveState, searches: bool) -> None:
        self._state, self._searches = state, searches

    def take_gone(self) -> set[str]:
        """The streams of which a job will read no more, for now or for good, since the last call."""
        return self._state.jobs.take_gone()

    def first(self, key: StreamKey, jobs: Collection[str]) -> int | None:
        """The first epoch of a stream that others than these jobs have yet to read; None: no other job has."""
        stream, book = name_of(key), self._state.jobs
        if self._searches and book.sharing[stream] > sum(book[job].stream == stream for job in jobs):
            return 0
        return book.first_awaited(stream, jobs)

    def of(self, stream: str, lanes: Mapping[int, Collection[str]]) -> tuple[int | None, dict[int, int]]:
        """What is still to be read of a stream, where no trials come: by jobs without a lane, and by lane.

        Args:
            lanes: its open ones, each with the jobs that read it.
        """
        book = self._state.jobs
        reading = {lane: [book[job].epoch for job in jobs if book[job].waits] for lane, jobs in lanes.items()}
        waiting = book.first_awaited(stream, [job for jobs in lanes.values() for job in jobs])
        return waiting, {lane: min(epochs) for lane, epochs in reading.items() if epochs}


def name_of(key: StreamKey) -> str:
    """How the books call a stream, whatever its epoch."""
    return f"{key.data}/{key.seed}"


class SampleCounter:
    """Knows each preprocessor's latest word, and who still owes one."""

    def __init__(self) -> None:
        self._read = Counter[str]()
        self._latest: dict[int, SamplesMade] = {}  # by rank
        self._owed = Counter[int]()  # words, by rank

    def read(self, data: str, samples: int) -> None:
        """A network has read so many samples of a data set."""
        self._read[data] += samples

    def closed(self, ranks: Iterable[int]) -> None:
        """These preprocessors were told to close a lane: each answers once."""
        self._owed.update(ranks)

    def told(self, word: SamplesMade) -> None:
        """A preprocessor has answered."""
        self._latest[word.rank] = word
        self._owed[word.rank] -= 1

    @property
    def awaited(self) -> frozenset[int]:
        """The ranks whose last answer has not come."""
        return frozenset(rank for rank, words in self._owed.items() if words > 0)

    @property
    def counts(self) -> SampleCounts:
        """All that is known by now."""
        total = SampleCounts().plus(self._read, {}, {})
        for word in self._latest.values():
            total = total.plus({}, word.laid, word.made)
        return total
