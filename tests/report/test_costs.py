"""What runs cost: device-hours times the price of their time, by job and for all devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.report.analysis import device_cost, run_costs
from fleet.report.live import result_table
from fleet.report.run_history import read_history
from fleet.report.run_page import render
from fleet.report.wording import cost

KINDS = {0: "fast", 1: "slow"}


def write(folder: Path, courses: Any, kinds: bool = True) -> Path:
    """A journal: `a` has the first device from 100 s to 1,100 s, `b` the second from 200 s to 2,000 s."""
    ranks = [
        {"rank": device + 1, "node": 0, "host": "h", "role": "trainer", "device": device, "device_name": "cpu"}
        | ({"kind": KINDS[device]} if kinds else {})
        for device in KINDS
    ]
    job = {"model": "m", "virtual_workers": 1, "batch_size": 4, "samples": 100, "max_epochs": 1}
    events = [
        {"t": 0.0, "event": "session", "session": 0},
        {"t": 0.0, "event": "cluster", "ranks": ranks, "devices_per_node": [1, 1] if kinds else [2]},
        *([{"t": 0.0, "event": "prices", "courses": courses, "worth": None}] if courses else []),
        *({"t": 0.0, "event": "job", "job": name, **job} for name in "ab"),
        {"t": 100.0, "event": "planned", "round": 0, "allocation": {"a": [0], "b": [1]}},
        {"t": 100.0, "event": "started", "round": 0, "job": "a", "devices": [0], "epoch": 0, "step": 0},
        {"t": 200.0, "event": "started", "round": 0, "job": "b", "devices": [1], "epoch": 0, "step": 0},
        {"t": 1100.0, "event": "done", "round": 0, "job": "a", "devices": [0], "epoch": 1, "why": "epochs"},
        {"t": 2000.0, "event": "done", "round": 0, "job": "b", "devices": [1], "epoch": 1, "why": "epochs"},
        {"t": 3600.0, "event": "ended", "status": "done", "overhead_seconds": {}, "wall_seconds": 3600.0},
    ]
    path = folder / "journal.jsonl"
    path.write_text("".join(json.dumps({"unix": 0.0, **event}) + "\n" for event in events))
    return path


def test_each_device_costs_its_price_of_the_time(tmp_path: Path) -> None:
    history = read_history(write(tmp_path, {"fast": [[0, 3.6]], "slow": [[0, 3.6], [1000, 7.2]]}))
    costs = run_costs(history)
    assert costs is not None
    assert costs.jobs == {"a": pytest.approx(1.0), "b": pytest.approx(0.8 + 2.0)}
    assert costs.used == pytest.approx(3.8) and costs.held == pytest.approx(3.6 + 1.0 + 5.2)
    assert costs.to_json() == {"jobs": dict(costs.jobs), "used": costs.used, "held": costs.held}


def test_a_device_costs_the_price_of_each_second() -> None:
    course = ((0.0, 1.0), (100.0, 4.0), (300.0, 2.0))
    assert device_cost(course, 50, 350) == pytest.approx((50 * 1 + 200 * 4 + 50 * 2) / 3600)
    assert device_cost(course, 120, 130) == pytest.approx(10 * 4 / 3600) and device_cost((), 0, 9) == 0.0


def test_one_price_holds_for_devices_that_are_alike(tmp_path: Path) -> None:
    costs = run_costs(read_history(write(tmp_path, {"": [[0, 1.8]]}, kinds=False)))
    assert costs is not None and costs.jobs == {"a": pytest.approx(0.5), "b": pytest.approx(0.9)}
    assert costs.held == pytest.approx(3.6)


def test_pages_and_tables_tell_costs_where_there_are_prices(tmp_path: Path) -> None:
    cases: list[tuple[Any, bool]] = [({"fast": [[0, 3.6]], "slow": [[0, 3.6]]}, True), (None, False)]
    for courses, told in cases:
        history = read_history(write(tmp_path, courses))
        columns = [str(column.header) for column in result_table(history).columns]
        assert ("cost" in columns) is told and ("The networks cost 2.80" in render(history, "r")) is told
    assert run_costs(history) is None


def test_prices_that_a_journal_cannot_have_are_passed_over(tmp_path: Path) -> None:
    cases: list[Any] = [{"fast": [[5, 1.0]]}, {"fast": []}, {"fast": [[0, -1.0]]}, {"fast": 3}, [1]]
    for courses in cases:
        assert run_costs(read_history(write(tmp_path, courses))) is None


def test_small_costs_keep_digits_that_matter() -> None:
    assert [cost(value) for value in (0.0, 0.00123456, 0.5, 1.0, 1234.5)] == [
        "0.00",
        "0.00123",
        "0.5",
        "1.00",
        "1,234.50",
    ]
