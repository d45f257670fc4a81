"""Whether those still live on whom a trainer depends: its launcher, and rank 0."""

from __future__ import annotations

import os
import time

from fleet.coordination.errors import CannotGoOnError

_GRACE_SECONDS = 5.0  # beyond the time-out: others may know more of why rank 0 is silent


class Orphaned(CannotGoOnError):
    """The process that started this rank is gone."""


class Unheard(CannotGoOnError):
    """Rank 0, which sends a pulse, is heard of no more."""


class Lifeline:
    """Ends a rank that nobody leads any more.

    Args:
        timeout: seconds without a word of rank 0 that are too many.

    Attributes:
        fatal: why the run must end, as rank 0 was told.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout, self._heard, self._parent = timeout, time.monotonic(), os.getppid()
        self.fatal = ""

    def heard(self) -> None:
        """Rank 0 has said something."""
        self._heard = time.monotonic()

    @property
    def is_orphaned(self) -> bool:
        """Whether the launcher is gone."""
        return os.getppid() != self._parent

    def check_launcher(self) -> None:
        """Raise Orphaned if the launcher is gone."""
        if self.is_orphaned:
            raise Orphaned("the launcher of this rank is gone")

    def check_pulse(self) -> None:
        """Raise Unheard if rank 0 is stuck as a whole: in a source of data that keeps Python's lock."""
        silence = time.monotonic() - self._heard
        if silence > self._timeout + _GRACE_SECONDS:
            more = f"; {self.fatal}" if self.fatal else ""
            raise Unheard(f"rank 0 has said nothing for {silence:.0f} s: a source of data may be stuck there{more}")
