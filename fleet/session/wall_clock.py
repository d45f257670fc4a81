"""The wall time of a run's seconds: its own clock leaves out the time between two starts, deadlines do not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from fleet.journal.events import Session
from fleet.journal.journal import read_journal
from fleet.spec.values import unix_seconds


@dataclass(frozen=True)
class WallClock:
    """When the run's seconds were.

    Attributes:
        sessions: for each start, the second of the run at which it began, and the time of second 0 by its clock, in
            seconds since 1970; the last one goes on.
    """

    sessions: tuple[tuple[float, float], ...]

    @classmethod
    def read(cls, journal: Path, second: float, unix: float) -> WallClock:
        """The clock of a start for which it is now that second of the run, after those that the journal tells of."""
        sessions, last = [], 0.0
        for event in read_journal(journal):
            if isinstance(event, Session):
                sessions.append((last, event.unix - event.t))
            last = max(last, event.t)
        return cls((*sessions, (last, unix - second)))

    def due(self, arrival: float, deadline: float | str | None) -> float:
        """The second of the run at which a job should be done, by the clock of this start; infinite: none.

        Args:
            arrival: second of the run at which it comes, or came by the clock of the start that went on then.
            deadline: seconds after that, with those between two starts; or a time as `timestamp` gives it.
        """
        now = self.sessions[-1][1]
        if deadline is None:
            return math.inf
        if isinstance(deadline, str):
            return unix_seconds(deadline) - now
        came = next(zero for begin, zero in reversed(self.sessions) if begin <= arrival or not begin)
        return arrival + deadline + came - now
