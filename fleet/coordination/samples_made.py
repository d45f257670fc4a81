"""Counts the samples of a session: what networks read, and what preprocessors say that they made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fleet.coordination.protocol import SamplesMade
from fleet.journal.state import SampleCounts


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
