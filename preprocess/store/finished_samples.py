"""Finished samples of whole epochs, for lanes that come to an epoch of a stream again.

A stream's samples are a function of (data set, seed, epoch). Networks that train one after the other read the same
epochs, and all read the same held-out samples in each epoch. So a preprocessor keeps what it has made of them, and
copies it where it comes again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from preprocess.samples.itinerary import Span
from preprocess.samples.layout import Array, SampleLayout
from preprocess.samples.order import HELD_OUT, TRAIN
from preprocess.samples.owners import Indices
from preprocess.samples.stream import LaneSpec

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
    """What one preprocessor makes of a slot.

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
        for span in self.spec.itinerary.spans(self.start, self.start + len(self.inputs)):
            begin, end = np.searchsorted(self.rows, (first, first + span.count)).tolist()
            first += span.count
            yield span, slice(begin, end)

    def places(self) -> Iterator[tuple[EpochPart, Indices, Indices]]:
        """Yield what the rows belong to: a part, the samples' places there, and the rows, (any,) each."""
        stream, length, first = self.spec.stream, self.spec.itinerary.length, 0
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

    @property
    def nbytes(self) -> int:
        """Bytes that what is kept may take."""
        return self._size - self._free

    def open(self, spec: LaneSpec) -> None:
        """A lane begins: epochs that all readers of its stream have passed are dropped."""
        self._lanes[spec.lane] = spec
        least = min(spec.stream.epoch, _awaited_from(spec))
        for part in [part for part in self._kept if part.is_of(spec) and part.kind == TRAIN and part.epoch < least]:
            self._drop(part)

    def close(self, lane: int) -> None:
        """A lane is closed."""
        self._lanes.pop(lane, None)

    def copy(self, portion: SlotPortion) -> bool:
        """Copy all samples of a portion, if all are here; else none."""
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
        for part, places, rows in portion.places():
            if len(rows) and (part.kind == HELD_OUT or part.epoch >= _awaited_from(portion.spec)):
                kept = self._kept.get(part) or self._begin(part, portion.spec)
                if kept is not None:
                    kept.keep(places, rows, portion)

    def _begin(self, part: EpochPart, spec: LaneSpec) -> _KeptPart | None:
        """Make room for a part, if that can be: what no open lane carries makes way, the longest unused first."""
        itinerary, makers = spec.itinerary, len(spec.makers) or self._writers
        samples = itinerary.held_out if part.kind == HELD_OUT else itinerary.length
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


def _awaited_from(spec: LaneSpec) -> float:
    """The first epoch of the lane's stream that somebody else comes to."""
    return math.inf if spec.awaited_from is None else spec.awaited_from
