"""What decides which trial trains how far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from fleet.search.decisions import Segment, Verdict


class StoppingRule(Protocol):
    """A rule of a search. It knows no time: it is told results in virtual order, and asked for each free slot.

    Losses are less the better; None is the loss of a trial that failed.
    """

    def first(self, trial: int) -> Segment:
        """The segment with which a trial begins."""
        ...

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict | None:
        """Take a result in virtual order; None: the trial goes on at once."""
        ...

    def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
        """What a free slot trains; None: nothing until more is known.

        Args:
            fresh: the number of the next new trial; None: there may be no more.
            trials: how many there will be, as far as is known in virtual time; None: nobody knows.
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

    def probable(self, trials: int) -> Iterator[Segment]:
        """Segments that `next` will very likely give later; the longest trained first.

        Args:
            trials: how many there will be.
        """
        ...

    def is_promising(self, segment: Segment, trials: int) -> bool:
        """Whether a paused trial is as likely to train a segment as one of which nobody knows anything, or likelier.

        Args:
            trials: how many there will be.
        """
        ...

    def sure(self, trials: int) -> Iterator[Segment]:
        """Segments that `next` will give whatever the results that are missing come to, or has given; the longest
        trained first. Those of new trials are not among them.

        Args:
            trials: how many there will be.
        """
        ...

    def hopeless(self, trials: int) -> Iterator[int]:
        """Trials that pause and will never go on, whatever the results that are missing come to, as far as it can tell.

        Args:
            trials: how many there will be.
        """
        return iter(())

    def after(self, segment: Segment) -> int:
        """Epochs that may follow on a segment, at most."""
        ...

    def mean_after(self, segment: Segment) -> float:
        """Epochs that follow on a segment in the mean."""
        ...

    def mean_after_new(self, new: range) -> float:
        """Epochs that follow on the first segments of new trials in the mean, of all of them together."""
        ...
