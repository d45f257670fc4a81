"""Times at which each sample is read next, over all open lanes: pure functions of (seed, epoch) tell them.

Orders of epochs are known before they are read, so nothing is guessed but the streams' paces (as Rahm and Ferguson,
1993, estimate them for scans that share a buffer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocess.samples.layout import Indices
from preprocess.samples.order import BlockOrder, EpochOrders
from preprocess.samples.stream import LaneSchedule, LaneSpec, SampleOwners, epoch_keys, sample_keys

Places = npt.NDArray[np.int32]

_NEVER = np.iinfo(np.int32).max  # later than any place, which is below two epochs
MOST_SAMPLES = 2**30


class KnownFutures:
    """The next reading of each sample of a data set by each stream, this epoch and the next one looked at.

    It takes 8 bytes a sample and stream: the place of the next reading, and the place in the epoch after.

    Args:
        samples: n, of the data set.
        streams: the most that are open at a time, K.
    """

    def __init__(self, samples: int, streams: int) -> None:
        if not 1 <= samples <= MOST_SAMPLES:
            raise ValueError(f"{samples} samples: from 1 to {MOST_SAMPLES:,} can be indexed")
        # Sample-major: what is known of a sample lies in one line of the cache. Places count from the epoch's start.
        self._places = np.full((samples, streams), _NEVER, np.int32)
        self._after: list[Places | None] = [None] * streams
        self._length = np.full(streams, samples, np.int64)  # of an epoch of each
        self._now = np.zeros(streams, np.int64)
        self._seconds = np.ones(streams)  # of one sample

    @property
    def samples(self) -> int:
        """n."""
        return len(self._places)

    @property
    def streams(self) -> int:
        """K."""
        return self._places.shape[1]

    def widen(self, streams: int) -> None:
        """Let so many streams be open at a time, no fewer than before."""
        more = streams - self.streams
        self._places = np.concatenate([self._places, np.full((self.samples, more), _NEVER, np.int32)], axis=1)
        self._after += [None] * more
        self._length = np.concatenate([self._length, np.full(more, self.samples)])
        self._now = np.concatenate([self._now, np.zeros(more, np.int64)])
        self._seconds = np.concatenate([self._seconds, np.ones(more)])

    @property
    def nbytes(self) -> int:
        """Memory that this takes."""
        return self._places.nbytes + sum(after.nbytes for after in self._after if after is not None)

    def open(self, stream: int, order: Indices, after: Indices | None, place: int = 0) -> None:
        """A stream begins to read an epoch at a place.

        Args:
            stream: its number, 0 .. K - 1; nobody else's now.
            order: the epoch's: the samples that it reads, each once, (m,).
            after: the next epoch's, (m,); None: this is the last one.
            place: where the first sample that it reads stands, 0 .. m.
        """
        self._length[stream] = len(order)
        self._after[stream] = None if after is None else self._inverse(after)
        places = self._inverse(order)
        gone = order[:place]
        places[gone] = self._in_next_epoch(stream, gone)
        self._places[:, stream] = places
        self._now[stream] = place

    def read(self, stream: int, samples: Indices) -> None:
        """A stream has read these samples, the next ones of its order, all of one epoch."""
        self._places[samples, stream] = self._in_next_epoch(stream, samples)
        self._now[stream] += len(samples)

    def next_epoch(self, stream: int, after: Indices | None) -> None:
        """A stream has read an epoch to its end, and goes on with the one whose order it named.

        Args:
            stream: its number.
            after: the order of the epoch after that, (m,); None: there is none.
        """
        column = self._places[:, stream]
        column[column != _NEVER] -= np.int32(self._length[stream])
        self._now[stream] = 0
        self._after[stream] = None if after is None else self._inverse(after)

    def close(self, stream: int) -> None:
        """A stream reads nothing any more."""
        self._places[:, stream] = _NEVER
        self._after[stream] = None

    def at_paces(self, seconds: npt.NDArray[np.float64]) -> None:
        """Each stream needs so many seconds a sample, (K,), by the latest estimate; 1 until it is told."""
        self._seconds = seconds

    def seconds_until(self, samples: Indices) -> npt.NDArray[np.float64]:
        """Seconds until each of these samples is read next, by whichever stream comes to it first, (len(samples),).

        A sample that nobody reads in this epoch or the next is 2^31 places away, so it comes after all others as long
        as paces differ by less than 2^30 / n.
        """
        ahead = self._places[samples] - self._now
        return np.asarray((ahead * self._seconds).min(axis=1))

    def _in_next_epoch(self, stream: int, samples: Indices) -> Places:
        after = self._after[stream]
        if after is None:
            return np.full(len(samples), _NEVER, np.int32)
        places = after[samples]
        places[places != _NEVER] += np.int32(self._length[stream])
        return places

    def _inverse(self, order: Indices) -> Places:
        """The place of each sample in an order that may leave some out."""
        places = np.full(self.samples, _NEVER, np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        return places


SMOOTHED = 0.3  # weight of the newest interval


class Paces:
    """Estimates seconds a sample of each stream.

    Args:
        streams: the most that are open at a time.
    """

    def __init__(self, streams: int) -> None:
        self._seconds = np.full(streams, np.nan)  # a sample, by intervals that are over
        self._last = np.full(streams, np.nan)
        self._count = np.ones(streams)

    def read(self, stream: int, count: int, now: float) -> None:
        """A stream has read so many samples, 1 or more, at this second."""
        interval = (now - self._last[stream]) / self._count[stream]
        known = self._seconds[stream]
        if not np.isnan(interval):
            self._seconds[stream] = interval if np.isnan(known) else known + SMOOTHED * (interval - known)
        self._last[stream], self._count[stream] = now, count

    def forget(self, stream: int) -> None:
        """A stream has closed; another one may have its number."""
        self._seconds[stream] = self._last[stream] = np.nan

    def seconds(self, now: float) -> npt.NDArray[np.float64]:
        """Seconds a sample of each stream, (streams,); those that are not known yet read as fast as the others do."""
        waited = (now - self._last) / self._count
        known = np.fmax(self._seconds, np.where(np.isnan(self._seconds), np.nan, waited))
        usual = 1.0 if np.isnan(known).all() else float(np.nanmedian(known))
        return np.asarray(np.where(np.isnan(known), usual, known))


class OwnedKeys:
    """Numbers the samples of preprocessor `number` of W: sample key x is x // W, where it owns x mod W = number.

    Where samples have owners by their blocks, they are counted through. Where it also stands in for others, samples
    keep their keys as numbers.

    Args:
        samples: n + h, training and held-out samples.
        writers: W.
        number: the preprocessor's number.
        blocks: the order by blocks; None: there is none.
    """

    def __init__(self, samples: int, writers: int, number: int, blocks: BlockOrder | None = None) -> None:
        self._samples, self._writers, self.number = samples, writers, number
        self._stands_in = False
        self._numbers = None if blocks is None else _counted(samples, writers, number, blocks)

    @property
    def count(self) -> int:
        """Numbers go from 0 to below this."""
        if self._stands_in:
            return self._samples
        if self._numbers is not None:
            return max(int(self._numbers.max()) + 1, 1)
        return max(-(-(self._samples - self.number) // self._writers), 1)

    def numbers(self, keys: Indices) -> Indices:
        """The number of each of its samples, (count,)."""
        if self._stands_in:
            return keys
        return keys // self._writers if self._numbers is None else self._numbers[keys].astype(np.int64)

    def number_of(self, key: int) -> int | None:
        """The number of a sample; None if it may not be its own."""
        if self._stands_in:
            return key
        if self._numbers is not None:
            known = self._numbers.item(key)
            return known if known >= 0 else None
        number, home = divmod(key, self._writers)
        return number if home == self.number else None

    def admit(self, owners: SampleOwners) -> Indices | None:
        """See whether it owns others' samples by these rules, for the first time.

        Returns:
            the new number of each sample by its old one, (count,), if they are numbered anew.
        """
        if self._stands_in or not owners.stands_in(self.number):
            return None
        if self._numbers is None:
            labels = np.arange(self.count) * self._writers + self.number
        else:
            labels = np.flatnonzero(self._numbers >= 0)
        self._stands_in = True
        return labels


def _counted(samples: int, writers: int, number: int, blocks: BlockOrder) -> npt.NDArray[np.signedinteger[Any]]:
    """The number of each sample by its key, (n + h,), in 4 bytes where they do; -1 for another preprocessor's."""
    own = SampleOwners(writers, (), blocks).of(np.arange(samples)) == number
    numbers = np.where(own, np.cumsum(own) - 1, -1)
    return numbers.astype(np.int32) if samples < 2**31 else numbers


@dataclass
class _Stream:
    """Contents of one lane, and the place that it has come to."""

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

    def __init__(self, own: OwnedKeys, orders: EpochOrders, lanes: int) -> None:
        self._own, self._orders, self._most = own, orders, lanes
        self.futures = KnownFutures(own.count, 1)
        self._paces = Paces(lanes)
        self._streams: dict[int, _Stream] = {}  # by lane

    def open(self, spec: LaneSpec, owners: SampleOwners) -> None:
        """A lane begins; its samples are numbered by now."""
        for lane, stream in list(self._streams.items()):
            if lane == spec.lane or (not stream.is_open and _carry_the_same(stream.spec, spec)):
                self._forget(lane)
        schedule = spec.schedule
        first = _first_part(schedule)
        before = 0 if _is_held_out(schedule) else schedule.first_place
        read = sample_keys(first, self._orders, spec.stream.seed, 0, before)
        place = len(np.unique(read[owners.of(read) == self._own.number]))
        stream = _Stream(spec, owners, schedule.first_epoch, place, self._free_column())
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
        """Follow the lanes in other numbers of the samples, which `OwnedKeys` has given."""
        self.futures = KnownFutures(self._own.count, self.futures.streams)
        for stream in self._streams.values():
            self._follow(stream)
        return self.futures

    def _free_column(self) -> int:
        """Return a column that no lane has; there are more of them from now on, if need be."""
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
        """Return this preprocessor's samples of an epoch, by number, in the order in which they are read."""
        schedule = stream.spec.schedule
        keys = epoch_keys(schedule, self._orders, stream.spec.stream.seed, epoch)
        keys = keys[schedule.length :] if _is_held_out(schedule) else keys
        return self._own.numbers(keys[stream.owners.of(keys) == self._own.number])


def _is_held_out(schedule: LaneSchedule) -> bool:
    """Say whether a lane carries the held-out samples of one epoch alone."""
    return schedule.last_epoch == schedule.first_epoch and schedule.first_place == schedule.places


def _carry_the_same(one: LaneSpec, other: LaneSpec) -> bool:
    """Say whether two lanes carry a seed's samples, both the held-out ones alone or neither."""
    return one.stream.seed == other.stream.seed and _is_held_out(one.schedule) == _is_held_out(other.schedule)


def _first_part(schedule: LaneSchedule) -> LaneSchedule:
    """The epoch in which a lane begins, from its start."""
    return LaneSchedule(schedule.length, schedule.tail, schedule.held_out, schedule.first_epoch)
