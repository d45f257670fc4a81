"""No stopping: each trial trains all epochs."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.search.segment import Segment, Verdict
from fleet.search.stopping.to_the_end import ToTheEnd


class Whole(ToTheEnd):
    """Each trial trains to its end.

    Args:
        epochs: how many each trial trains.
    """

    def __init__(self, epochs: int) -> None:
        super().__init__(epochs, epochs)

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict:
        """The trial is done."""
        return "fail" if loss is None else "done"

    def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
        """The new trial."""
        return None if fresh is None else self.first(fresh)

    def arrived(self, trial: int, epoch: int, loss: float | None) -> None:
        """Nothing follows from it."""

    def likely(self, trials: int | None = None) -> Iterator[Segment]:
        """Nothing but new trials."""
        return iter(())
