"""What is told of promised deadlines agrees with what was told before, and with what became of them."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from fleet.report.live import PlainView
from fleet.report.run_history import build_history
from tests.journals import as_event, as_events

Event = dict[str, Any]
LATE = {"t": 2.0, "event": "late", "job": "a", "deadline": 10.0, "end": 10.5}
SAID = "its deadline, 10.0 s, cannot be kept: it ends at 10.5 s at the earliest, 0.50 s late"


def done(t: float) -> Event:
    return {"t": t, "event": "done", "job": "a", "epoch": 1, "why": "epochs", "deadline": 10.0, "metrics": {}}


def told(*events: Event) -> tuple[list[str], list[str]]:
    """The lines on a terminal that name the deadline, and the warnings of the report."""
    sheet = io.StringIO()
    view = PlainView(Console(file=sheet))
    for event in events:
        view.event(as_event(event))
    lines = [line.partition("] ")[2] for line in sheet.getvalue().splitlines() if "deadline" in line]
    return lines, [warning.text for warning in build_history(as_events(events)).warnings]


def test_that_a_late_job_can_keep_its_deadline_after_all_is_told() -> None:
    again = {"t": 3.0, "event": "admitted", "job": "a", "deadline": 10.0}
    lines, warnings = told({**again, "t": 1.0}, LATE, again, done(9.0))
    assert warnings == [SAID, "its deadline can be kept after all"]
    assert lines == [f"warning: a: {SAID}", "a: its deadline can be kept after all"]


@pytest.mark.parametrize(("end", "kept"), [(9.9, True), (10.0, True), (10.3, False)])
def test_a_late_job_that_is_done_in_time_is_told_to_be(end: float, kept: bool) -> None:
    lines, warnings = told(LATE, done(end))
    said = "its deadline was kept after all"
    assert warnings == ([SAID, said] if kept else [SAID])
    assert len(lines) == 1 + kept and lines[-1].endswith(f"; {said}") == kept


def test_a_job_that_was_never_late_is_done_without_a_word_of_it() -> None:
    assert told(done(9.0)) == ([], [])
