"""What is told of deadlines that were promised, where something else turns out than was told last."""

from __future__ import annotations

from fleet.report.line_values import number_of
from fleet.report.wording import lateness
from fleet.run_directory.journal import JournalLine


class Promises:
    """Knows the jobs that were told to be late."""

    def __init__(self) -> None:
        self._late: set[str] = set()

    def told(self, event: JournalLine) -> str:
        """The sentence about the event's job, if the event has one; else ""."""
        kind, job = event.get("event"), str(event.get("job"))
        deadline, end, now = (number_of(event.get(key)) for key in ("deadline", "end", "t"))
        if kind == "late":
            self._late.add(job)
            return lateness(deadline, end)
        if kind not in ("admitted", "done") or job not in self._late:
            return ""
        self._late.discard(job)
        if kind == "admitted":
            return "its deadline can be kept after all"
        in_time = deadline is not None and now is not None and now <= deadline
        return "its deadline was kept after all" if in_time else ""
