"""Rank 0 tells preprocessors which epochs networks have yet to read, so that they keep no others."""

from __future__ import annotations

from collections.abc import Collection

from fleet.coordination.awaited_epochs import AwaitedEpochs, name_of
from fleet.coordination.crew import Crew
from fleet.coordination.protocol import StreamAwaited
from preprocess import LaneSpec, StreamKey

_NOTHING = None, frozenset[int]()


class KeptEpochs:
    """Knows what preprocessors were told of each stream whose samples they may keep.

    Args:
        crew: is told.
        awaited: knows which epochs come again.
    """

    def __init__(self, crew: Crew, awaited: AwaitedEpochs) -> None:
        self._crew, self._awaited = crew, awaited
        self._streams: dict[str, StreamKey] = {}  # those of which anything may be kept
        self._told: dict[str, tuple[int | None, frozenset[int]]] = {}
        self._readers: dict[int, Collection[str]] = {}  # of open lanes
        self._changed, self._gone = False, awaited.gone

    def opened(self, lane: LaneSpec, jobs: Collection[str]) -> None:
        """A lane is opened for these jobs, of whom it is told what others await."""
        name = name_of(lane.stream)
        self._changed |= name in self._streams
        self._streams[name] = lane.stream
        self._told[name] = lane.awaited_from, frozenset([lane.lane])
        self._readers[lane.lane] = jobs

    def closed(self, number: int) -> None:
        """All readers have left a lane."""
        del self._readers[number]
        self._changed = True

    def look(self) -> None:
        """Tell what is new since the last look: a lane was opened or closed, or a job reads no more."""
        if not self._changed and self._gone == self._awaited.gone:
            return
        self._changed, self._gone = False, self._awaited.gone
        found = self._awaited.of_all(self._readers)
        for name, key in list(self._streams.items()):
            waiting, reading = found.get(name, (None, {}))
            now = waiting, frozenset(reading)
            if now != self._told[name]:
                self._crew.tell_preprocessors(StreamAwaited(key.data, key.seed, waiting, reading))
                self._told[name] = now
            if now == _NOTHING:
                del self._streams[name], self._told[name]
