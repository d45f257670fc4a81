"""Which prepared samples are kept within a budget of bytes: those that are read soonest (Belady, 1966).

Belady's rule looks at all that is kept; here it looks at a window of neighbours, drawn at random, which costs a
constant time and prepares hardly more samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from preprocess.store.known_futures import Indices, KnownFutures

TRIES = 12  # samples that are looked at for each one that wants to be kept
_ABSENT = -1


@dataclass(frozen=True)
class Choice:
    """What becomes of samples that were just prepared.

    Attributes:
        kept: whether each is kept, (count,).
        evicted: samples that go in their place, (any,).
    """

    kept: npt.NDArray[np.bool_]
    evicted: Indices


class Keeper:
    """Knows what is kept, and who goes where there is no room. The caller holds the samples themselves.

    It takes 16 bytes a kept sample, and 4 bytes for each sample of the data set.

    Args:
        futures: when each sample is read next.
        budget: bytes.
        draw: where windows lie.
        tries: samples that are looked at for each newcomer.
    """

    def __init__(self, futures: KnownFutures, budget: int, draw: np.random.Generator, tries: int = TRIES) -> None:
        self._futures, self._budget, self._draw, self._tries = futures, budget, draw, tries
        self._place = np.full(futures.samples, _ABSENT, np.int32)  # in the two that follow
        self._kept = np.empty(0, np.int64)
        self._bytes = np.empty(0, np.int64)
        self._count = self._used = 0

    @property
    def used(self) -> int:
        """Bytes of what is kept."""
        return self._used

    @property
    def nbytes(self) -> int:
        """Memory that this takes, without the samples."""
        return self._place.nbytes + self._kept.nbytes + self._bytes.nbytes

    def __len__(self) -> int:
        """How many samples are kept."""
        return self._count

    def holds(self, samples: Indices) -> npt.NDArray[np.bool_]:
        """Whether each of these samples is kept, (count,)."""
        return np.asarray(self._place[samples] != _ABSENT)

    def choose(self, samples: Indices, sizes: npt.NDArray[np.int64]) -> Choice:
        """Keep those of some samples that are read soonest, in the place of others that are read later.

        Args:
            samples: different ones that are not kept, (count,).
            sizes: bytes of each, (count,).
        """
        free = self._budget - self._used
        if sizes.sum() <= free:
            self._add(samples, sizes)
            return Choice(np.ones(len(samples), np.bool_), np.empty(0, np.int64))
        window = self._window(self._tries * len(samples))
        rivals = np.concatenate([samples, self._kept[window]])
        weights = np.concatenate([sizes, self._bytes[window]])
        soonest = np.argsort(self._futures.seconds_until(rivals), kind="stable")
        stays = np.zeros(len(rivals), np.bool_)
        room = free + int(self._bytes[window].sum())
        stays[soonest] = np.cumsum(weights[soonest]) <= room
        kept, gone = stays[: len(samples)], window[~stays[len(samples) :]]
        evicted = self._kept[gone]
        self._remove(gone)
        self._add(samples[kept], sizes[kept])
        return Choice(kept, evicted)

    def forget(self, samples: Indices) -> None:
        """These kept samples are lost."""
        self._remove(np.sort(self._place[samples].astype(np.int64)))

    def relabel(self, labels: Indices, futures: KnownFutures) -> None:
        """Let sample i have the number labels[i] from now on, in an index of other futures."""
        self._futures = futures
        self._kept[: self._count] = labels[self._kept[: self._count]]
        self._place = np.full(futures.samples, _ABSENT, np.int32)
        self._place[self._kept[: self._count]] = np.arange(self._count)

    def _window(self, length: int) -> Indices:
        """Neighbouring places among what is kept, ascending."""
        if length >= self._count:
            return np.arange(self._count)
        start = int(self._draw.integers(self._count))
        return np.sort((start + np.arange(length)) % self._count)

    def _add(self, samples: Indices, sizes: npt.NDArray[np.int64]) -> None:
        end = self._count + len(samples)
        if end > len(self._kept):
            more = np.empty(max(end, 2 * len(self._kept), 1024) - len(self._kept), np.int64)
            self._kept, self._bytes = np.concatenate([self._kept, more]), np.concatenate([self._bytes, more])
        self._kept[self._count : end], self._bytes[self._count : end] = samples, sizes
        self._place[samples] = np.arange(self._count, end)
        self._count, self._used = end, self._used + int(sizes.sum())

    def _remove(self, places: Indices) -> None:
        """Take out what lies at these ascending places; the last ones fill the gaps."""
        self._place[self._kept[places]] = _ABSENT
        self._used -= int(self._bytes[places].sum())
        end = self._count - len(places)
        tail = np.arange(end, self._count)
        movers = tail[self._place[self._kept[tail]] != _ABSENT]
        gaps = places[: len(movers)]
        self._kept[gaps], self._bytes[gaps] = self._kept[movers], self._bytes[movers]
        self._place[self._kept[gaps]] = gaps
        self._count = end
