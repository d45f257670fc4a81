"""When each sample is read next, over all streams that are open: pure functions of (seed, epoch) tell it.

Orders of epochs are known before they are read, so nothing is guessed but the streams' paces (as Rahm and Ferguson,
1993, estimate them for scans that share a buffer).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int32]
Indices = npt.NDArray[np.int64]

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
