"""Rank 0 tells preprocessors which epochs networks have yet to read, so that they keep no others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from fleet.coordination.awaited_epochs import AwaitedEpochs, name_of
from fleet.coordination.crew import Crew
from fleet.coordination.protocol import StreamAwaited
from preprocess.samples.stream import LaneSpec, StreamKey

_NOTHING = None, frozenset[int]()


class KeptEpochs:
    """Knows what preprocessors were told of each stream whose samples they may keep.

    Args:
        crew: is told.
        awaited: knows which epochs come again.
    """

    def __init__(self, crew: Crew, awaited: AwaitedEpochs) -> None:
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
