"""Deadlines that are times of day: with an offset, or in the time zone of whoever reads them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from fleet.spec import EnsembleSpec, SpecError, loads
from fleet.spec.values import due, timestamp, unix_seconds

SPEC = """
name: due
data: {d: {train: "examples.digits:Digits"}}
jobs: [{name: a, task: "m:T", stop: {epochs: 1}, deadline: DUE}]
"""


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "unix"),
    [
        ("2026-12-01T08:00", 1796130000.0),
        ("2026-07-01 08:00:30", 1782907230.0),  # summer time
        ("2026-12-01T08:00+01:00", 1796108400.0),
        ("2026-12-01T08:00Z", 1796112000.0),
    ],
)
def test_a_time_without_an_offset_is_one_of_the_local_time_zone(new_york: None, text: str, unix: float) -> None:
    assert unix_seconds(timestamp(text)) == unix and timestamp(timestamp(text)) == timestamp(text)


def test_a_spec_keeps_the_offset_with_which_it_was_read(new_york: None) -> None:
    spec = loads(SPEC.replace("DUE", "2026-12-01T08:00"))
    assert spec.jobs[0].deadline == "2026-12-01T08:00:00-05:00"
    assert EnsembleSpec.from_mapping(spec.to_mapping()) == spec
    assert loads(SPEC, ["jobs.a.deadline=2026-12-01T09:00Z"]).jobs[0].deadline == "2026-12-01T09:00:00+00:00"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("tomorrow", "must be a number of seconds, or a time"),
        ("2026-12-01", "must be a number of seconds, or a time"),
        ("2026-13-01T08:00", "must be a number of seconds, or a time"),
        ("'60'", "must be a number of seconds, or a time"),
        ("true", "must be a number"),
        ("-3", "must be more than 0"),
        (".inf", "must be a finite number"),
    ],
)
def test_what_is_no_deadline_is_told_with_one(text: str, rule: str) -> None:
    with pytest.raises(SpecError) as caught:
        loads(SPEC.replace("DUE", text))
    (problem,) = caught.value.problems
    assert (problem.path, problem.rule) == ("jobs[0].deadline", rule)
    assert "2026-12-01T08:00" in str(problem) or not text[0].isalnum() or text == "true"


def test_an_option_takes_both(new_york: None) -> None:
    assert (due("90"), due("2026-12-01T08:00")) == (90.0, "2026-12-01T08:00:00-05:00")
    for text in ("0", "-1", "inf", "nan", "soon"):
        with pytest.raises(ValueError, match="2026-12-01T08:00"):
            due(text)
