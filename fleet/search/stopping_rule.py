"""The door for stopping rules: what decides which trial of a search trains how far.

A rule of one's own is a class with three methods, named in a spec as `stopping: module:Name`, or by an installed
package in its entry points `fleet.stopping_rules`. This one stops a trial that is worse than the first was:

    from fleet.search import Segment, StoppingRule

    class BetterThanTheFirst(StoppingRule):
        def __init__(self, epochs):
            self.epochs, self.bar, self.ready = epochs, None, []

        def first(self, trial):
            return Segment(trial, 0, 1)

        def report(self, trial, epoch, loss):
            if loss is None:
                return "fail"
            self.bar = loss if self.bar is None else self.bar
            if epoch == self.epochs:
                return "done"
            if loss > self.bar:
                return "stop"
            self.ready.append(Segment(trial, epoch, epoch + 1))

        def next(self, fresh, trials=None):
            if self.ready:
                return self.ready.pop(0)
            return None if fresh is None else self.first(fresh)

Its class is called with what it names of `epochs` (of a whole trial), `trials` (how many there may be; None: nobody
knows), `seed` (of the search) and `over` (dotted path -> distribution), and with the `arguments` of the spec. It is a
pure function of what it is told: no clock, no files, no global randomness. So a search decides the same on any
devices, and a run that goes on, or is played by `fleet simulate --search`, decides it once more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from fleet.search.decisions import Segment, Verdict


class StoppingRule(ABC):
    """A rule of a search. It knows no time: it is told results in virtual order, and asked for each free slot.

    Losses are less the better; None is the loss of a trial that failed. A rule that can tell more of what it will want
    inherits from `SpeculativeRule`, and devices that would be idle train that ahead.
    """

    @abstractmethod
    def first(self, trial: int) -> Segment:
        """Return the segment with which a trial begins, of the trial's number alone."""

    @abstractmethod
    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict | None:
        """Take a result in virtual order.

        Returns:
            `pause` (it may be resumed later), `stop` (it never will), `done` (it has all epochs), `fail` (it has no
            value), or None: it goes on at once, as `next` is to say.
        """

    @abstractmethod
    def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
        """Return what a free slot trains: a trial that goes on, or the new one; None: nothing until more is known.

        Args:
            fresh: the number of the next new trial; None: there may be no more.
            trials: how many there will be, as far as is known in virtual time; None: nobody knows.
        """


class SpeculativeRule(StoppingRule):
    """A rule that tells of segments before it decides on them; the defaults are those of a rule that knows nothing.

    None of it changes a decision: it says what idle devices train ahead, and when the search comes to its tail.
    """

    def arrived(self, trial: int, epoch: int, loss: float | None) -> None:
        """Take a result in real order, maybe long before `report`; it changes only what the other methods tell."""

    def likely(self, trials: int | None = None) -> Iterator[Segment]:
        """Yield segments that `next` may well give later, as results have arrived; the likeliest first.

        Args:
            trials: how many there will be; None: nobody knows.
        """
        return iter(())

    def probable(self, trials: int) -> Iterator[Segment]:
        """Yield segments that `next` will very likely give later of `trials` trials; the longest trained first."""
        return iter(())

    def is_promising(self, segment: Segment, trials: int) -> bool:
        """Whether a paused trial is as likely to train a segment as one of which nobody knows anything, or likelier."""
        return True

    def sure(self, trials: int) -> Iterator[Segment]:
        """Yield segments that `next` will give whatever the results that are missing come to, or has given; the
        longest trained first. Those of new trials are not among them.
        """
        return iter(())

    def hopeless(self, trials: int) -> Iterator[int]:
        """Yield trials that pause and will never go on, whatever the results that are missing come to, as far as it
        can tell.
        """
        return iter(())

    def after(self, segment: Segment) -> int:
        """Return how many epochs may follow on a segment, at most."""
        return 0

    def mean_after(self, segment: Segment) -> float:
        """Return how many epochs follow on a segment in the mean."""
        return self.after(segment)

    def mean_after_new(self, new: range) -> float:
        """Return how many epochs follow in the mean on the first segments of new trials, of all of them together."""
        return 0.0
