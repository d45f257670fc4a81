"""When epochs end, as the simulator of Sia's authors has it: at whole seconds, though jobs get on between them."""

from __future__ import annotations

from typing import NamedTuple

REPORT = 60.0
"""Seconds between two reports of a job; with each it may change its batch."""
_BEFORE = 1e-8
"""Seconds that an epoch ends before a report with which it is over: it ends first, however times are rounded."""
_AFTER = 1e-5
"""Seconds after a report at which an epoch ends that was not over with the report, though its end is rounded to it."""
_WHOLE = 1e-2
"""Seconds by which a time may miss a whole second that it stands for."""


class Stretch(NamedTuple):
    """A part of an epoch in which the job's place and batch stay as they are.

    The books show less and less left, in a straight line to nothing at the rounded end. What is truly left, which a
    move or another batch takes along, falls by the goodput, and is rounded away only at the end.

    Attributes:
        shown: samples left at its begin, as the books have them.
        left: samples truly left then.
        goodput: samples/s.
        seconds: until the epoch ends, if nothing changes.
    """

    shown: float
    left: float
    goodput: float
    seconds: float

    def left_at(self, shown: float) -> float:
        """Samples truly left where the books show so many."""
        gone = 1.0 - shown / self.shown if self.shown > 0 else 1.0
        return max(0.0, self.left - self.goodput * self.seconds * gone)

    @property
    def pace(self) -> float:
        """Samples/s with which the books come to the end of the epoch when it is there."""
        return self.shown / self.seconds if self.shown > 0 else self.goodput


def stretch(shown: float, left: float, goodput: float, since: float) -> Stretch:
    """The stretch that begins at `since`, seconds."""
    return Stretch(shown, left, goodput, _until_end(left / goodput, since))


def _until_end(seconds: float, since: float) -> float:
    begin, whole = round(since), round(seconds)
    if abs(since - begin) > _WHOLE:  # whole seconds mean nothing there
        return max(float(whole), _AFTER)
    end = float(begin + whole)
    if end % REPORT == 0:
        end += _AFTER if seconds > whole else -_BEFORE
    return max(end - since, _AFTER)
