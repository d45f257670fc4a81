"""Deadlines by the clock of a run, which leaves out the time between two starts that deadlines count."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fleet.session.books import WallClock

NOON = 1_796_126_400.0  # 2026-12-01T12:00Z
LINES: list[dict[str, Any]] = [
    {"event": "session", "t": 0.0, "unix": NOON},
    {"event": "job", "job": "a", "t": 100.0, "unix": NOON + 100},
    {"event": "session", "t": 100.5, "unix": NOON + 5100.5},
    {"event": "ended", "overhead_seconds": {}, "t": 200.0, "unix": NOON + 5200},
]


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    """Of a run that stood still for 5000 s after its second 100, and for 3000 s after its second 200."""
    journal = tmp_path / "journal.jsonl"
    journal.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return WallClock.read(journal, 201.0, NOON + 8201)


@pytest.mark.parametrize(
    ("arrival", "due"),
    [(0.0, 9000 - 8000), (99.0, 9099 - 8000), (100.0, 9100 - 3000), (199.0, 9199 - 3000), (200.0, 9200), (900.0, 9900)],
)
def test_seconds_count_from_the_arrival_with_those_between_two_starts(
    clock: WallClock, arrival: float, due: float
) -> None:
    assert clock.due(arrival, 9000.0) == due


def test_a_time_of_day_is_the_same_by_any_clock(clock: WallClock) -> None:
    assert clock.due(0.0, "2026-12-01T15:00:00+01:00") == clock.due(900.0, "2026-12-01T14:00:00+00:00") == 7200 - 8000


def test_a_job_without_a_deadline_is_never_late(clock: WallClock) -> None:
    assert clock.due(5.0, None) == math.inf


def test_a_run_that_begins_counts_from_its_begin(tmp_path: Path) -> None:
    assert WallClock.read(tmp_path / "journal.jsonl", 0.5, NOON + 0.5).due(3.0, 10.0) == 13.0
