"""What the lanes of a preprocessor will read of its own samples, as far ahead as an epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from preprocess.samples.itinerary import Itinerary
from preprocess.samples.order import EpochOrders
from preprocess.samples.owners import Indices, SampleOwners, epoch_keys, sample_keys
from preprocess.samples.stream import LaneSpec
from preprocess.store.known_futures import KnownFutures
from preprocess.store.own_samples import OwnKeys
from preprocess.store.paces import Paces


@dataclass
class _Stream:
    """What one lane carries, and where it is."""

    spec: LaneSpec
    owners: SampleOwners
    epoch: int
    place: int  # own samples of the epoch that were read
    column: int  # in the known futures
    is_open: bool = True


class LaneFutures:
    """Follows the lanes through their epochs.

    A lane that is closed keeps its future, as most go on soon, in another lane: a network that was re-formed or paused,
    a loader's next epoch. As nothing comes of it, its pace falls, and it counts less and less. It ends when another
    lane carries the same seed's samples.

    Args:
        own: this preprocessor's samples.
        orders: the orders of the data set's epochs.
        lanes: most lanes, of a ring.
    """

    def __init__(self, own: OwnKeys, orders: EpochOrders, lanes: int) -> None:
        self._own, self._orders, self._most = own, orders, lanes
        self.futures = KnownFutures(own.count, 1)
        self._paces = Paces(lanes)
        self._streams: dict[int, _Stream] = {}  # by lane

    def open(self, spec: LaneSpec, owners: SampleOwners) -> None:
        """A lane begins; its samples are numbered by now."""
        for lane, stream in list(self._streams.items()):
            if lane == spec.lane or (not stream.is_open and _carry_the_same(stream.spec, spec)):
                self._forget(lane)
        itinerary = spec.itinerary
        first = _first_part(itinerary)
        before = 0 if _is_held_out(itinerary) else itinerary.first_place
        read = sample_keys(first, self._orders, spec.stream.seed, 0, before)
        place = len(np.unique(read[owners.of(read) == self._own.number]))
        stream = _Stream(spec, owners, itinerary.first_epoch, place, self._free_column())
        self._streams[spec.lane] = stream
        self._follow(stream)

    def read(self, lane: int, epoch: int, samples: Indices, now: float) -> None:
        """A lane has carried some of its own samples, by number, of one epoch, at this second."""
        stream = self._streams[lane]
        while stream.epoch < epoch:
            stream.epoch, stream.place = stream.epoch + 1, 0
            self.futures.next_epoch(stream.column, self._epoch(stream, stream.epoch + 1))
        if len(samples):
            self.futures.read(stream.column, samples)
            stream.place += len(samples)
            self._paces.read(stream.column, len(samples), now)

    def look(self, now: float) -> None:
        """See how fast the lanes are, before it is chosen what is kept."""
        self.futures.at_paces(self._paces.seconds(now)[: self.futures.streams])

    def close(self, lane: int) -> None:
        """A lane is closed, for now."""
        if lane in self._streams:
            self._streams[lane].is_open = False

    def renumbered(self) -> KnownFutures:
        """Follow the lanes in other numbers of the samples, which `OwnKeys` has given."""
        self.futures = KnownFutures(self._own.count, self.futures.streams)
        for stream in self._streams.values():
            self._follow(stream)
        return self.futures

    def _free_column(self) -> int:
        """One that no lane has; there are more of them from now on, if need be."""
        taken = {stream.column for stream in self._streams.values()}
        column = min(set(range(len(taken) + 1)) - taken)
        if column >= self.futures.streams:
            self.futures.widen(min(2 * self.futures.streams, self._most))
        return column

    def _follow(self, stream: _Stream) -> None:
        order = self._epoch(stream, stream.epoch)
        place = min(stream.place, len(order))
        self.futures.open(stream.column, order, self._epoch(stream, stream.epoch + 1), place)

    def _forget(self, lane: int) -> None:
        column = self._streams.pop(lane).column
        self.futures.close(column)
        self._paces.forget(column)

    def _epoch(self, stream: _Stream, epoch: int) -> Indices:
        """This preprocessor's samples of an epoch, by number, in the order in which they are read."""
        itinerary = stream.spec.itinerary
        keys = epoch_keys(itinerary, self._orders, stream.spec.stream.seed, epoch)
        keys = keys[itinerary.length :] if _is_held_out(itinerary) else keys
        return self._own.numbers(keys[stream.owners.of(keys) == self._own.number])


def _is_held_out(itinerary: Itinerary) -> bool:
    """Say whether a lane carries the held-out samples of one epoch alone."""
    return itinerary.last_epoch == itinerary.first_epoch and itinerary.first_place == itinerary.places


def _carry_the_same(one: LaneSpec, other: LaneSpec) -> bool:
    """Say whether two lanes carry a seed's samples, both the held-out ones alone or neither."""
    return one.stream.seed == other.stream.seed and _is_held_out(one.itinerary) == _is_held_out(other.itinerary)


def _first_part(itinerary: Itinerary) -> Itinerary:
    """The epoch in which a lane begins, from its start."""
    return Itinerary(itinerary.length, itinerary.tail, itinerary.held_out, itinerary.first_epoch)
