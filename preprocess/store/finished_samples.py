"""Finished samples of whole epochs, for lanes that come to an epoch of a stream again.

A stream's samples are a function of (data set, seed, epoch). Networks that train one after the other read the same
epochs, and all read the same held-out samples in each epoch. So a preprocessor keeps what it has made of them, and
copies it where it comes again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from preprocess.samples.layout import Array, Indices, SampleLayout
from preprocess.samples.order import HELD_OUT, TRAIN
from preprocess.samples.stream import LaneSpec, Span

_NOWHERE = -1
_MARGIN = 1.1
"""One of several preprocessors has room for so many times its even part of an epoch, as it may make more than that."""


class EpochPart(NamedTuple):
    """The training samples of an epoch of a stream, or the held-out ones, which are the same in all its epochs."""

    data: str
    seed: int
    kind: str
    epoch: int

    def is_of(self, spec: LaneSpec) -> bool:
        """Say whether a lane carries its stream."""
        return (self.data, self.seed) == (spec.stream.data, spec.stream.seed)


@dataclass(frozen=True)
class SlotPortion:
    """One preprocessor's part of a slot.

    Attributes:
        spec: the lane.
        start: lane position of the slot's first sample.
        rows: which rows of it, ascending, (count,); what lies past the lane's end does not count.
        inputs, targets: the slot's, (slot samples, ...).
    """

    spec: LaneSpec
    start: int
    rows: Indices
    inputs: Array
    targets: Array

    def spans(self) -> Iterator[tuple[Span, slice]]:
        """Yield what the slot carries, each with those of the rows that belong to it."""
        first = 0
        for span in self.spec.schedule.spans(self.start, self.start + len(self.inputs)):
            begin, end = np.searchsorted(self.rows, (first, first + span.count)).tolist()
            first += span.count
            yield span, slice(begin, end)

    def places(self) -> Iterator[tuple[EpochPart, Indices, Indices]]:
        """Yield what the rows belong to: a part, the samples' places there, and the rows, (any,) each."""
        stream, length, first = self.spec.stream, self.spec.schedule.length, 0
        for span, own in self.spans():
            rows = self.rows[own]
            places = rows - first + span.start
            first += span.count
            if span.kind == HELD_OUT:
                yield EpochPart(stream.data, stream.seed, HELD_OUT, 0), places, rows
            else:
                yield EpochPart(stream.data, stream.seed, TRAIN, span.epoch), places % length, rows


class FinishedSamples:
    """Keeps finished samples of all data sets within so many bytes.

    Args:
        size: bytes that they may take.
        writers: preprocessors of the run.

    Attributes:
        copied: samples that were not made anew, by data set.
    """

    def __init__(self, size: int, writers: int = 1) -> None:
        self.copied: dict[str, int] = {}
        self._size = self._free = size
        self._writers = writers
        self._kept: dict[EpochPart, _KeptPart] = {}  # those used last come last
        self._lanes: dict[int, LaneSpec] = {}
        self._streams: dict[tuple[str, int], _Awaited] = {}

    @property
    def nbytes(self) -> int:
        """Bytes that what is kept may take."""
        return self._size - self._free

    def open(self, spec: LaneSpec) -> None:
        """A lane begins: epochs that all readers of its stream have passed are dropped."""
        self._lanes[spec.lane] = spec
        before = self._streams.get(_stream_of(spec), _Awaited())
        here = {lane: first for lane, first in before.reading.items() if lane in self._lanes}
        self._streams[_stream_of(spec)] = _Awaited(_awaited_from(spec), {**here, spec.lane: spec.stream.epoch})
        self._drop_passed(*_stream_of(spec))

    def keep_awaited(self, data: str, seed: int, waiting: int | None, reading: Mapping[int, int]) -> None:
        """Learn what is still to be read of a stream: all else of it is dropped, and not kept any more.

        Args:
            waiting: the first epoch that anybody without a lane has yet to read; None: nobody has.
            reading: the first that the readers of each open lane have.
        """
        known = self._streams.get((data, seed))
        if known is not None:
            first = math.inf if waiting is None else waiting
            self._streams[data, seed] = _Awaited(
                first, {lane: max(epoch, known.reading.get(lane, epoch)) for lane, epoch in reading.items()}
            )
            self._drop_passed(data, seed)

    def close(self, spec: LaneSpec) -> None:
        """A lane is closed; its readers may come again."""
        if self._lanes.get(spec.lane) is not spec:
            return
        del self._lanes[spec.lane]
        awaited = self._streams[_stream_of(spec)]
        awaited.waiting = min(awaited.waiting, awaited.reading.pop(spec.lane, math.inf))

    def clear(self) -> None:
        """Drop all."""
        for part in list(self._kept):
            self._drop(part)

    def copy(self, portion: SlotPortion) -> bool:
        """Copy all samples of a portion, if all are here; else none."""
        self._come_to(portion)
        found = [(part, self._kept.get(part), places, rows) for part, places, rows in portion.places() if len(rows)]
        if not all(kept is not None and kept.has(places) for _, kept, places, _ in found):
            return False
        for part, kept, places, rows in found:
            assert kept is not None
            kept.copy(places, rows, portion)
            self._kept[part] = self._kept.pop(part)
            self.copied[part.data] = self.copied.get(part.data, 0) + len(rows)
        return bool(found)

    def keep(self, portion: SlotPortion) -> None:
        """Keep the samples of a portion that come again, as far as there is room."""
        spec = portion.spec
        awaited = self._streams.get(_stream_of(spec))
        others = _awaited_from(spec) if awaited is None else awaited.by_others(spec.lane)
        for part, places, rows in portion.places():
            if len(rows) and (part.kind == HELD_OUT or part.epoch >= others):
                kept = self._kept.get(part) or self._begin(part, spec)
                if kept is not None:
                    kept.keep(places, rows, portion)

    def _come_to(self, portion: SlotPortion) -> None:
        """See how far a lane has come: what it has passed is dropped, if nobody else awaits it."""
        spec, stream = portion.spec, _stream_of(portion.spec)
        awaited, span = self._streams.get(stream), next(portion.spans(), None)
        if awaited is None or span is None or spec.lane not in awaited.reading:
            return
        if span[0].epoch > awaited.reading[spec.lane]:
            awaited.reading[spec.lane] = span[0].epoch
            self._drop_passed(*stream)

    def _drop_passed(self, data: str, seed: int) -> None:
        """Drop the epochs of a stream that nobody has yet to read, and held-out samples once there are no others."""
        first = self._streams[data, seed].first
        for part in [part for part in self._kept if (part.data, part.seed) == (data, seed)]:
            if first == math.inf or (part.kind == TRAIN and part.epoch < first):
                self._drop(part)

    def _begin(self, part: EpochPart, spec: LaneSpec) -> _KeptPart | None:
        """Make room for a part, if that can be: what no open lane carries makes way, the longest unused first."""
        schedule, makers = spec.schedule, len(spec.makers) or self._writers
        samples = schedule.held_out if part.kind == HELD_OUT else schedule.length
        room = min(samples, math.ceil(_MARGIN * samples / makers))
        need = room * (spec.layout.input_bytes + spec.layout.target_bytes) + samples * np.dtype(np.int32).itemsize
        idle = [each for each in self._kept if not any(map(each.is_of, self._lanes.values()))]
        while need > self._free and idle:
            self._drop(idle.pop(0))
        if need > self._free:
            return None
        self._free -= need
        self._kept[part] = _KeptPart(spec.layout, samples, room, need)
        return self._kept[part]

    def _drop(self, part: EpochPart) -> None:
        self._free += self._kept.pop(part).nbytes


@dataclass
class _Awaited:
    """Epochs of a stream that have yet to be read.

    Attributes:
        waiting: the first that anybody without a lane has; infinite: nobody has.
        reading: the first that the readers of each open lane have.
    """

    waiting: float = math.inf
    reading: dict[int, int] = field(default_factory=dict)

    @property
    def first(self) -> float:
        """The first that anybody has yet to read."""
        return min(self.waiting, *self.reading.values(), math.inf)

    def by_others(self, lane: int) -> float:
        """The first that others than the readers of a lane have."""
        return min((self.waiting, *(first for other, first in self.reading.items() if other != lane)))


class _KeptPart:
    """Some samples of a part, each in the row that was free when it came.

    Args:
        layout: of the samples.
        samples: of the whole part.
        room: how many of them there is room for.
        nbytes: what that takes at most; memory is taken as it is written.
    """

    def __init__(self, layout: SampleLayout, samples: int, room: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self._inputs, _ = layout.empty(room)
        self._targets = layout.targets_in(np.empty(room * layout.target_bytes, np.uint8), room)
        self._rows, self._used = np.full(samples, _NOWHERE, np.int32), 0

    def has(self, places: Indices) -> bool:
        """Say whether the samples at all these places are here."""
        return bool((self._rows[places] >= 0).all())

    def copy(self, places: Indices, rows: Indices, portion: SlotPortion) -> None:
        """Copy the samples at these places into these rows of the slot."""
        kept = self._rows[places]
        portion.inputs[rows], portion.targets[rows] = self._inputs[kept], self._targets[kept]

    def keep(self, places: Indices, rows: Indices, portion: SlotPortion) -> None:
        """Keep what lies in these rows of the slot, of the samples at these places; as many as there is room for."""
        new = np.flatnonzero(self._rows[places] < 0)[: len(self._inputs) - self._used]
        own = slice(self._used, self._used + len(new))
        self._inputs[own], self._targets[own] = portion.inputs[rows[new]], portion.targets[rows[new]]
        self._rows[places[new]] = np.arange(own.start, own.stop)
        self._used = own.stop


def _stream_of(spec: LaneSpec) -> tuple[str, int]:
    return spec.stream.data, spec.stream.seed


def _awaited_from(spec: LaneSpec) -> float:
    """The first epoch of the lane's stream that somebody else comes to."""
    return math.inf if spec.awaited_from is None else spec.awaited_from
