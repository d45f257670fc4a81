"""The lanes of the rings that are open, who reads them, and which samples of their streams are still awaited.

`OpenLanes` opens and closes lanes; `LaneGrouping` says which jobs read one lane together, by `divided`, the rule that
the simulator uses too; `KeptEpochs` tells preprocessors which epochs networks have yet to read, so that they keep no
others; `SampleCounter` counts what was read and made.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from fleet.coordination.live_state import LiveState
from fleet.coordination.protocol import CloseLane, OpenLane, SamplesMade, Start, StreamAwaited
from fleet.coordination.reading_together import divided, reader_of
from fleet.coordination.worker_channel import WorkerChannel
from fleet.journal.state import SampleCounts
from preprocess.samples.stream import LaneSpec, StreamKey
from preprocess.sharing.joining import Reader


@dataclass(frozen=True)
class StreamPlace:
    """Where a job's next samples lie.

    Jobs with an equal `key` can read one lane, from the smallest `place` in the epoch's order on.
    """

    key: StreamKey
    place: int


class LaneMaker(Protocol):
    """Knows the jobs' data."""

    def place_of(self, job: str, epoch: int, step: int) -> StreamPlace:
        """Return where the job's samples at (epoch, step) lie."""

    def lane(
        self, number: int, first: StreamPlace, jobs: Mapping[str, int | None], readers: tuple[int, ...]
    ) -> LaneSpec:
        """Return the opening of a lane that begins at `first` and is read by these ranks.

        Args:
            jobs: those that read it -> epochs after which each pauses; None: it reads until it is done.
        """

    def samples_between(self, job: str, begin: tuple[int, int], end: tuple[int, int]) -> int:
        """Return how many samples the job reads from one (epoch, step) to another: the training samples of its steps,
        and the validation samples of each epoch that it finishes.
        """


class OpenLanes:
    """Opens lanes on every node, and closes those that nobody reads any more.

    Args:
        channel: sends the orders.
        maker: knows the jobs' data.
        count: how many lanes the rings have.
        grouping: says which jobs at unlike places of a stream read together; None: all do.
        kept: lets preprocessors drop what nobody reads any more; None: they find that out as lanes open.
        makers: how many preprocessors can fill one lane; 0: all.

    Attributes:
        samples: counts what was made for lanes and read there.
    """

    def __init__(
        self,
        channel: WorkerChannel,
        maker: LaneMaker,
        count: int,
        grouping: LaneGrouping | None = None,
        kept: KeptEpochs | None = None,
        makers: int = 0,
    ) -> None:
        self._channel, self._maker, self._grouping, self._kept = channel, maker, grouping, kept
        self._makers = makers
        self._free = deque(range(count))
        self._jobs: dict[int, set[str]] = {}  # lane -> the jobs that read it
        self._data: dict[int, str] = {}  # lane -> its data set
        self.samples = SampleCounter()

    @property
    def spare(self) -> int:
        """How many lanes can be opened beside one that closes."""
        return len(self._free) - 1

    def open_for(self, batch: Sequence[Start], share: bool) -> list[tuple[Start, LaneSpec]]:
        """Open lanes for the jobs of an allocation, and return each job with its lane, in the order of the lanes.

        Jobs at one place of a stream share a lane; jobs at other places do if the grouping says so, or where the rings
        have no lane left.
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
        """Yield the jobs of each lane, of classes that may read together; each class has a lane at least."""
        spare = len(self._free) - len(classes)
        for readers in classes:
            starts, places = [start for start, _ in readers], [place.place for _, place in readers]
            found = [list(range(len(readers)))]
            if self._grouping is not None and len(readers) > 1:
                found = self._grouping.divided(starts, places, spare + 1)
            spare -= len(found) - 1
            yield from ([readers[index] for index in members] for members in found)

    def _open(self, starts: list[Start], places: list[StreamPlace]) -> LaneSpec:
        """Open a lane that begins where the rearmost of its jobs stands."""
        number = self._free.popleft()
        readers = tuple(rank for start in starts for rank in self._channel.ranks_of(start.devices))
        first = replace(places[0], place=min(place.place for place in places))
        jobs = self._jobs[number] = {start.job for start in starts}
        lane = self._maker.lane(number, first, {start.job: start.until for start in starts}, readers)
        # Where each preprocessor owns a part of the samples all of them work: nobody else keeps these.
        wanted = 0 if lane.divided else max(start.makers for start in starts) or self._channel.share(len(readers))
        lent = [] if lane.divided else list(dict.fromkeys(device for start in starts for device in start.prepared_by))
        if self._makers and not lane.divided:
            lent = lent[: self._makers - 1]
            wanted = min(wanted or self._makers, self._makers - len(lent))
        lane = replace(lane, makers=self._channel.makers(wanted, lent))
        self._data[number] = lane.stream.data
        told = self._channel.send_for_lane(OpenLane(lane))
        if self._kept is not None:
            self._kept.opened(lane, jobs, told)
        return lane

    def look(self) -> None:
        """Let preprocessors drop what nobody reads any more."""
        if self._kept is not None:
            self._kept.look()

    def leave(self, number: int, job: str, begin: tuple[int, int], end: tuple[int, int]) -> None:
        """Take a job off a lane, and close the lane after its last job; the job has read from one (epoch, step) to
        another.
        """
        self.samples.read(self._data[number], self._maker.samples_between(job, begin, end))
        self._jobs[number].discard(job)
        if not self._jobs[number]:
            del self._jobs[number]
            self.samples.closed(self._channel.send_for_lane(CloseLane(number)))
            if self._kept is not None:
                self._kept.closed(number)
            self._free.append(number)  # a later opening has a later generation, and waits on each node for this end


class LaneGrouping:
    """Divides jobs that start together in one stream among lanes.

    Args:
        state: knows paces, how long jobs train, and how fast preprocessors are.
    """

    def __init__(self, state: LiveState) -> None:
        self._state = state

    def divided(self, starts: Sequence[Start], places: Sequence[int], most: int) -> list[list[int]]:
        """Return the indices of the jobs of each lane, of jobs each at its place, for so many lanes at most."""
        data, path = self._state.jobs[starts[0].job].state.data, self._state.data_path
        made = math.inf if path is None else path.feeds(data) * self._state.helpers.times
        return divided(list(map(self._reader, starts, places)), made, most)

    def _reader(self, start: Start, place: int) -> Reader | None:
        job = self._state.jobs[start.job]
        pace = 0.0 if job.guessed else min(self._state.pace(job.name, start.devices), self._state.feeds(job.name))
        return reader_of(job.state, place, len(start.devices), pace)


_NOTHING = None, frozenset[int]()


class KeptEpochs:
    """Tells preprocessors which epochs networks have yet to read, so that they keep no others.

    Args:
        channel: sends it.
        awaited: knows which epochs are read again.
    """

    def __init__(self, channel: WorkerChannel, awaited: AwaitedEpochs) -> None:
        self._channel, self._awaited = channel, awaited
        self._streams: dict[str, _Stream] = {}  # streams of which anything may be kept
        self._changed: set[str] = set()
        self._lanes: dict[int, str] = {}  # open lane -> its stream

    def opened(self, lane: LaneSpec, jobs: Collection[str], makers: Collection[int]) -> None:
        """Note a lane for these jobs; its opening has told these ranks, which fill it, what others await."""
        name = self._lanes[lane.lane] = name_of(lane.stream)
        if name in self._streams:
            self._changed.add(name)
        stream = self._streams.setdefault(name, _Stream(lane.stream))
        stream.makers.update(makers)
        stream.readers[lane.lane] = jobs
        stream.sent = lane.awaited_from, frozenset([lane.lane])

    def closed(self, number: int) -> None:
        """Note that all readers have left a lane."""
        name = self._lanes.pop(number)
        del self._streams[name].readers[number]
        self._changed.add(name)

    def look(self) -> None:
        """Send what has changed since the last look: a lane was opened or closed, or a job reads no more."""
        changed, self._changed = self._changed | self._awaited.take_gone(), set()
        for name in sorted(changed & self._streams.keys()):
            stream = self._streams[name]
            waiting, reading = self._awaited.of(name, stream.readers)
            now = waiting, frozenset(reading)
            if now != stream.sent:
                word = StreamAwaited(stream.key.data, stream.key.seed, waiting, reading)
                self._channel.send_to_preprocessors(stream.makers, word)
                stream.sent = now
            if now == _NOTHING and not stream.readers:
                del self._streams[name]


@dataclass
class _Stream:
    """A stream whose samples may be kept.

    Attributes:
        makers: ranks that have filled lanes of it: no others keep any of its samples.
        readers: open lane -> the jobs that read it.
        sent: the first epoch that is awaited outside of lanes, and the lanes that read on.
    """

    key: StreamKey
    makers: set[int] = field(default_factory=set)
    readers: dict[int, Collection[str]] = field(default_factory=dict)
    sent: tuple[int | None, frozenset[int]] = _NOTHING


class AwaitedEpochs:
    """Knows which epochs of a stream are read again, by networks that do not read them now.

    Args:
        state: knows where each job stands.
        searches: trials may come, which begin at the first epoch.
    """

    def __init__(self, state: LiveState, searches: bool) -> None:
        self._state, self._searches = state, searches

    def take_gone(self) -> set[str]:
        """Return the streams of which a job reads no more, for now or for good, since the last call."""
        return self._state.jobs.take_gone()

    def first(self, key: StreamKey, jobs: Collection[str]) -> int | None:
        """Return the first epoch of a stream that others than these jobs have yet to read; None: there is none."""
        stream, book = name_of(key), self._state.jobs
        if self._searches and book.sharing[stream] > sum(book[job].stream == stream for job in jobs):
            return 0
        return book.first_awaited(stream, jobs)

    def of(self, stream: str, lanes: Mapping[int, Collection[str]]) -> tuple[int | None, dict[int, int]]:
        """Return the first epochs that are still to be read of a stream: by jobs without a lane, and by lane.

        Args:
            lanes: open lanes of the stream, each with the jobs that read it.
        """
        book = self._state.jobs
        reading = {lane: [book[job].epoch for job in jobs if book[job].waits] for lane, jobs in lanes.items()}
        waiting = book.first_awaited(stream, [job for jobs in lanes.values() for job in jobs])
        return waiting, {lane: min(epochs) for lane, epochs in reading.items() if epochs}


def name_of(key: StreamKey) -> str:
    """Return the name of a stream in job records, whatever its epoch."""
    return f"{key.data}/{key.seed}"


class SampleCounter:
    """Counts the samples of a session: those that networks read, and those that preprocessors say they made."""

    def __init__(self) -> None:
        self._read = Counter[str]()
        self._latest: dict[int, SamplesMade] = {}  # rank -> its latest answer
        self._owed = Counter[int]()  # rank -> answers that it owes

    def read(self, data: str, samples: int) -> None:
        """Count samples of a data set that a network has read."""
        self._read[data] += samples

    def closed(self, ranks: Iterable[int]) -> None:
        """Await one answer of each of these preprocessors, which were told to close a lane."""
        self._owed.update(ranks)

    def on_samples_made(self, word: SamplesMade) -> None:
        """Take a preprocessor's answer."""
        self._latest[word.rank] = word
        self._owed[word.rank] -= 1

    @property
    def awaited(self) -> frozenset[int]:
        """The ranks whose last answer has not come."""
        return frozenset(rank for rank, words in self._owed.items() if words > 0)

    @property
    def counts(self) -> SampleCounts:
        """All that is known so far."""
        total = SampleCounts().plus(self._read, {}, {})
        for word in self._latest.values():
            total = total.plus({}, word.laid, word.made)
        return total
