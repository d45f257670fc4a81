"""The journal on real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleet.run_directory.journal import Journal, read_journal


def test_events_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("one", value=np.float64(1.5), counts=(np.int64(1), 2))
    journal.write("two")
    journal.close()
    events = list(read_journal(tmp_path / "journal.jsonl"))
    assert [event["event"] for event in events] == ["one", "two"]
    assert events[0]["value"] == 1.5 and events[0]["counts"] == [1, 2]


def test_a_torn_line_spoils_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"t": 3.0, "event": "whole"}\n{"t": 9.0, "event": "to')
    journal = Journal(path)
    journal.write("after")
    journal.close()
    assert [event["event"] for event in read_journal(path)] == ["whole", "after"]


def test_the_clock_goes_on_where_the_last_session_ended(tmp_path: Path) -> None:
    now = [100.0]
    first = Journal(tmp_path / "journal.jsonl", clock=lambda: now[0])
    now[0] = 107.0
    assert first.write("end")["t"] == 7.0
    first.close()
    now[0] = 5000.0
    second = Journal(tmp_path / "journal.jsonl", clock=lambda: now[0])
    now[0] = 5001.0
    assert second.seconds() == pytest.approx(8.0)
    second.close()


def test_listeners_hear_what_is_written_and_what_is_announced(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    journal = Journal(tmp_path / "journal.jsonl")
    journal.listen(heard.append)
    journal.write("kept")
    journal.announce("passing", step=3)
    journal.close()
    assert [event["event"] for event in heard] == ["kept", "passing"]
    assert [event["event"] for event in read_journal(tmp_path / "journal.jsonl")] == ["kept"]


def test_no_path_no_file(tmp_path: Path) -> None:
    journal = Journal(None)
    assert journal.write("heard")["event"] == "heard"
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_journal_has_no_events(tmp_path: Path) -> None:
    assert list(read_journal(tmp_path / "none.jsonl")) == []


def test_lines_are_plain_json(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("text", text="zwei\nZeilen")
    journal.close()
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert len(lines) == 1 and json.loads(lines[0])["text"] == "zwei\nZeilen"
