"""The live views and the table at the end."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from fleet.journal.state import RunState
from fleet.report.live import LiveView, PlainView, result_table, view_for
from fleet.report.run_history import build_history
from tests.journals import as_event, as_events

Event = dict[str, Any]


def console(terminal: bool, height: int = 40, width: int = 120, **keys: Any) -> Console:
    environment = {"TERM": "xterm-256color", **keys}
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, height=height, _environ=environment)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def screen(view: LiveView) -> str:
    """What the table shows now."""
    sheet = console(terminal=False)
    sheet.print(view._render())
    return written(sheet)


def test_a_pipe_gets_lines_and_a_terminal_a_table() -> None:
    assert isinstance(view_for(console(terminal=False)), PlainView)
    assert isinstance(view_for(console(terminal=True, TERM="dumb")), PlainView)
    view = view_for(console(terminal=True))
    view.close()
    assert isinstance(view, LiveView)


def test_plain_lines_say_what_a_person_wants(simulated: Callable[..., list[Event]]) -> None:
    sheet = console(terminal=False)
    view = PlainView(sheet)
    events = simulated(jobs=8, failing=(3,), killed_after=60)
    for event in events:
        view.event(as_event(event))
    view.close()
    lines = written(sheet).splitlines()
    wanted = {
        "session",
        "cluster",
        "preprocessors",
        "planned",
        "epoch",
        "stopped",
        "done",
        "failed",
        "warning",
        "ended",
    }
    assert len(lines) == sum(event["event"] in wanted for event in events)
    assert "[   3.20 s] flotilla 0: net-0 on 0; net-1 on 1; net-2 on 2-3" in lines
    assert any("net-2 epoch 1/4: accuracy " in line and "samples/s on 2 devices" in line for line in lines)
    assert any(line.endswith("net-3 FAILED: ValueError: net-3 <b>") for line in lines)
    assert any("goes on, session 1" in line for line in lines)
    assert lines[-1].endswith("7 done, 1 failed")


def test_a_name_can_neither_colour_nor_clear_the_terminal() -> None:
    sheet = console(terminal=True)
    view = PlainView(sheet)
    view.event(as_event({"t": 1, "event": "failed", "job": "\x1b[2Jx", "error": "[red]no[/red]\r\n\x07"}))
    assert "\x1b[2J" not in written(sheet) and "\x07" not in written(sheet)
    assert "[red]no[/red]" in written(sheet)


def test_what_earlier_sessions_did_is_counted() -> None:
    results = {
        "first": {"status": "done", "epochs": 3, "metrics": {"accuracy": 0.9}},
        "second": {"status": "failed", "epochs": 1, "metrics": None},
        "third": {"status": "pending", "epochs": 2, "metrics": {}},
    }
    sheet = console(terminal=False)
    plain, live = PlainView(sheet, 3), LiveView(console(terminal=True), 3)
    for view in (plain, live):
        view.recall(results)
    assert "1 of 3 done, 1 failed" in screen(live) and "90.00 %" in screen(live)
    for view in (plain, live):
        view.event(as_event({"event": "started", "t": 1.0, "job": "second", "devices": [0], "epoch": 1}))
        view.event(as_event({"event": "ended", "t": 2.0, "status": "stopped", "wall_seconds": 2.0}))
        view.close()
    assert written(sheet).splitlines()[-1].endswith("stopped after 2.00 s: 1 done, 0 failed")


def test_the_live_table_shows_where_the_run_stands(simulated: Callable[..., list[Event]]) -> None:
    now = 100.0
    view = LiveView(console(terminal=True), total=9, clock=lambda: now)
    events = simulated(jobs=8)
    first_epoch = next(index for index, event in enumerate(events) if event["event"] == "epoch")
    for event in events[: first_epoch + 1]:
        view.event(as_event(event))
    shown, running = screen(view), {e["job"] for e in events[:first_epoch] if e["event"] == "started"}
    assert "flotilla 0" in shown and "0 of 9 done" in shown and "devices 4/4" in shown
    assert len(running) == 3 and shown.count("running") == 3 and shown.count("pending") == 5
    assert "1/4" in shown and " epoch 1/4: accuracy" in shown
    before = shown.splitlines()[0]
    now = 107.0
    assert screen(view).splitlines()[0] != before
    for event in events[first_epoch + 1 :]:
        view.event(as_event(event))
    shown = screen(view)
    view.close()
    view.close()
    assert "8 of 9 done" in shown and "devices 0/4" in shown and shown.count("done ") >= 8


def test_a_hundred_networks_fit_on_a_screen(simulated: Callable[..., list[Event]]) -> None:
    view = LiveView(console(terminal=True, height=24))
    for event in simulated(jobs=100, devices_per_node=(8,))[:150]:
        view.event(as_event(event))
    shown = screen(view)
    view.close()
    assert len(shown.splitlines()) <= 24
    assert "... and " in shown and "pending" in shown.splitlines()[-7]


def test_epochs_are_counted_from_where_a_session_goes_on() -> None:
    state = RunState()
    state.take(as_event({"t": 1, "event": "started", "job": "a", "devices": [1], "epoch": 3, "step": 30}))
    state.take(
        as_event({"t": 2, "event": "epoch", "job": "a", "epoch": 3, "metrics": {}, "rate": None, "devices": [1]})
    )
    assert state.jobs["a"].epochs == 4
    state.take(as_event({"t": 3, "event": "started", "job": "b", "devices": [1], "epoch": 0, "step": 0}))
    state.take(as_event({"t": 4, "event": "stopped", "job": "a", "why": "policy"}))
    assert state.held == {1: "b"}


@pytest.mark.parametrize("width", [60, 120])
def test_the_table_at_the_end(simulated: Callable[..., list[Event]], width: int) -> None:
    sheet = console(terminal=False, width=width)
    sheet.print(result_table(build_history(as_events(simulated(jobs=8, failing=(3,))))))
    text = written(sheet)
    assert "failed" in text and "7 of 8" in text and max(map(len, text.splitlines())) <= width
    if width == 120:
        assert "all epochs trained" in text and "91.65 %" in text and "ValueError: net-3 <b>" in text


def test_the_table_of_a_run_without_networks() -> None:
    sheet = console(terminal=False)
    sheet.print(result_table(build_history(as_events([]))))
    assert "0 of 0 networks done" in written(sheet)
