"""What rules have in common that may let any trial train to its end."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.search.segment import Segment


class ToTheEnd:
    """Of no trial that has begun it is sure that it goes on, and any may train all epochs.

    Args:
        epochs: how many a trial trains at most.
        first: how many it trains before it is looked at.
    """

    def __init__(self, epochs: int, first: int) -> None:
        self._epochs, self._first = epochs, first

    def first(self, trial: int) -> Segment:
        """As many epochs as any trial trains."""
        return Segment(trial, 0, self._first)

    def probable(self, trials: int) -> Iterator[Segment]:
        """Nothing."""
        return iter(())

    def is_promising(self, segment: Segment, trials: int) -> bool:
        """As far as anybody knows."""
        return True

    def sure(self, trials: int) -> Iterator[Segment]:
        """Nothing."""
        return iter(())

    def hopeless(self, trials: int) -> Iterator[int]:
        """Nobody: none pauses."""
        return iter(())

    def after(self, segment: Segment) -> int:
        """All that are left."""
        return self._epochs - segment.end

    def mean_after(self, segment: Segment) -> float:
        """All that are left, as nobody knows."""
        return self.after(segment)

    def mean_after_new(self, new: range) -> float:
        """All, as nobody knows."""
        return len(new) * (self._epochs - self._first)
