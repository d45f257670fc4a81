"""What decides which trial trains how far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from fleet.search.segment import Segment, Verdict


class StoppingRule(Protocol):
    """A rule of a search. It knows no time: it is told results in virtual order, and asked for each free slot.

    Losses are less the better; None is the loss of a trial that failed.

    Attributes:
        waits: whether trials wait for each other, so that none goes on before the last has come.
    """

    @property
    def waits(self) -> bool:
        """Whether they do."""
        ...

    def first(self, trial: int) -> Segment:
        """The segment with which a trial begins."""
        ...

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict | None:
        """Take a result in virtual order; None: the trial goes on at once."""
        ...

    def next(self, fresh: int | None) -> Segment | None:
        """What a free slot trains; None: nothing until more is known.

        Args:
            fresh: the number of the next new trial; None: there may be no more.
        """
        ...

    def arrived(self, trial: int, epoch: int, loss: float | None) -> None:
        """Take a result in real order, maybe long before `report`; it changes only what is `likely`."""
        ...

    def likely(self, trials: int | None = None) -> Iterator[Segment]:
        """Segments that `next` may well give later, as results have arrived; the likeliest first.

        Args:
            trials: how many there will be; None: nobody knows.
        """
        ...

    def sure(self, trials: int) -> Iterator[Segment]:
        """Segments that `next` will give whatever the results that are missing come to, or has given; the longest
        trained first. Those of new trials are not among them.

        Args:
            trials: how many there will be.
        """
        ...

    def after(self, segment: Segment) -> int:
        """Epochs that may follow on a segment, at most."""
        ...

    def mean_after(self, new: range) -> float:
        """Epochs that follow on the first segments of new trials in the mean, of all of them together."""
        ...
