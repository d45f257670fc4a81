"""Samples that could not be made: their records, and how many there may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from preprocess.samples.errors import CorruptLimitError

Stage = Literal["source", "transform"]

#: Characters of an error that are kept: some libraries put a whole file into theirs.
_MOST_REASON = 300
_MOST_NAMED = 5


@dataclass(frozen=True)
class SkippedSample:
    """A sample that could not be made, so that another was taken.

    Attributes:
        data: name of the data set.
        kind: "train" or "held_out".
        sample: index in the source.
        substitute: index of the sample that was taken.
        epoch: epoch in which that happened first.
        reason: kind and text of the error.
        stage: "source" if reading it raised: that is so in every epoch. "transform" if a transform raised, or if it
            does not have the others' shape: that may be so for the random numbers of some epochs alone.
    """

    data: str
    kind: str
    sample: int
    substitute: int
    epoch: int
    reason: str
    stage: Stage = "source"

    def __str__(self) -> str:
        return f"{self.kind} sample {self.sample} ({self.reason})"


class CorruptSamples:
    """The samples of one data set that were skipped, each counted once.

    Args:
        data: name of the data set.
        limit: how many there may be.
        on_skip: called with each, once.
    """

    def __init__(self, data: str, limit: int, on_skip: Callable[[SkippedSample], None] | None = None) -> None:
        self.on_skip = on_skip
        self._data, self._limit = data, limit
        self._skipped: dict[tuple[str, int], SkippedSample] = {}
        self._told: set[tuple[str, int]] = set()
        self._told_kinds: set[str] = set()

    def tell(self, kind: str, samples: Iterable[int]) -> None:
        """Take samples as corrupt that somebody else found."""
        told = {(kind, sample) for sample in samples}
        self._told |= told
        self._told_kinds |= {kind for kind, _ in told}

    def was_told(self, kind: str, sample: int) -> bool:
        """Say whether somebody else found the sample corrupt."""
        return (kind, sample) in self._told

    def was_told_any(self, kind: str) -> bool:
        """Say whether somebody else found any sample of this kind corrupt."""
        return kind in self._told_kinds

    def add(self, skipped: SkippedSample) -> None:
        """Note a sample that was skipped.

        Raises:
            CorruptLimitError: it is one too many.
        """
        key = (skipped.kind, skipped.sample)
        if key in self._skipped or key in self._told:
            return
        self._skipped[key] = skipped
        if self.on_skip is not None:
            self.on_skip(skipped)
        if len(self._skipped) + len(self._told) > self._limit:
            raise CorruptLimitError(self._data, self._limit, list(map(str, self._skipped.values()))[:_MOST_NAMED])


def reason_of(error: Exception) -> str:
    """Return kind and text of an error in one line, cut where it is very long."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _MOST_REASON else text[:_MOST_REASON] + " ..."
