"""The history that a journal tells, and its tables, against numbers computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.report.analysis import (
    best_network,
    device_times,
    flotillas,
    job_rates,
    job_results,
    mean_waiting,
    metric_names,
    overheads,
)
from fleet.report.run_history import build_history, read_history
from tests.journals import as_events

Event = dict[str, Any]


def at(t: float, event: str, **keys: Any) -> Event:
    return {"t": t, "unix": 1.7e9 + t, "event": event, **keys}


def epoch(t: float, job: str, number: int, **keys: Any) -> Event:
    return at(t, "epoch", job=job, epoch=number, step=10 * (number + 1), seconds=4.0, **keys)


def start(devices: int = 2, session: int = 0, t: float = 0.0) -> list[Event]:
    opening = at(t, "session", session=session, fleet="0.1", policy="flotilla", policy_parameters={}, host="h")
    return [opening, at(t, "cluster", ranks=[], devices_per_node=[devices])]


@pytest.fixture
def two_flotillas() -> list[Event]:
    """a and b for 12 s and 8 s side by side, then c for 4 s on both devices; 24 s in all."""
    c_times: Event = {"waited": {"0": {"data": 0.25, "peers": 0.5}, "1": {"data": 0.0, "peers": 0.0}}}
    return [
        *start(),
        *(at(0, "job", job=job, max_epochs=2, parameters=10) for job in "abc"),
        at(2, "profile", job="a", devices=[0], count=1, rate=90.0, seconds=1.5, batches=48),
        at(2, "profile", job="b", devices=[1], count=1, rate=50.0, seconds=1.0, batches=48),
        at(2, "rates", job="a", source="profile", measured={"1": 90.0}, fitted=[100.0, 190.0]),
        at(3, "planned", round=0, allocation={"a": [0], "b": [1]}, paces={"a": 100.0}, seconds=0.1),
        at(4, "started", round=0, job="a", devices=[0], epoch=0, step=0, seconds=0.5),
        at(4, "started", round=0, job="b", devices=[1], epoch=0, step=0, seconds=0.5),
        epoch(
            10,
            "a",
            0,
            round=0,
            devices=[0],
            rate=96.0,
            metrics={"loss": 2.0, "accuracy": 0.5},
            waited={"0": {"data": 1.0, "peers": 0.0}},
            computed={"0": 4.0},
        ),
        at(10, "checkpoint", job="a", epoch=0, step=10, path="a/0.h5", bytes=5, seconds=0.25),
        epoch(
            12,
            "b",
            0,
            round=0,
            devices=[1],
            rate=48.0,
            metrics={"loss": 1.0, "accuracy": 0.75},
            waited={"1": {"data": 0.5, "peers": 0.0}},
            computed={"1": 7.0},
        ),
        at(
            12,
            "done",
            round=0,
            job="b",
            devices=[1],
            epoch=1,
            why="target",
            metrics={"accuracy": 0.75},
            checkpoint="b/1.h5",
        ),
        epoch(
            16,
            "a",
            1,
            round=0,
            devices=[0],
            rate=84.0,
            metrics={"loss": 1.5, "accuracy": 0.625},
            waited={"0": {"data": 0.5, "peers": 0.0}},
            computed={"0": 5.0},
        ),
        at(
            16,
            "done",
            round=0,
            job="a",
            devices=[0],
            epoch=2,
            why="epochs",
            metrics={"accuracy": 0.625},
            checkpoint="a/2.h5",
        ),
        at(16, "round_end", round=0, start=3.0, end=16.0),
        at(17, "planned", round=1, allocation={"c": [0, 1]}, paces={}, seconds=0.1),
        at(18, "started", round=1, job="c", devices=[0, 1], epoch=0, step=0, seconds=1.0),
        epoch(
            22,
            "c",
            0,
            round=1,
            devices=[0, 1],
            rate=170.0,
            metrics={"loss": 3.0},
            computed={"0": 3.0, "1": 3.5},
            **c_times,
        ),
        at(22, "failed", round=1, job="c", devices=[0, 1], epoch=1, error="ValueError: no", traceback="T"),
        at(22, "round_end", round=1, start=17.0, end=22.0),
        at(24, "warning", text="slow", job=None),
    ]


def test_flotilla_table_has_mean_and_deviation_of_running_lengths(two_flotillas: list[Event]) -> None:
    first, second = flotillas(build_history(as_events(two_flotillas)))
    assert first.lengths == {"a": 12.0, "b": 8.0}
    assert (first.mean, first.deviation) == (10.0, 2.0)
    assert first.allocation == {"a": (0,), "b": (1,)}
    assert (first.label, first.start, first.end) == ("0", 3.0, 16.0)
    assert (second.mean, second.deviation, second.devices) == (4.0, 0.0, (0, 1))


def test_waiting_time_of_each_device(two_flotillas: list[Event]) -> None:
    zero, one = device_times(build_history(as_events(two_flotillas)))
    assert (zero.reserved, zero.computing, zero.profiling) == (24.0, 12.0, 1.5)
    # Held for 12 s and 4 s, formed in 0.5 s and 1 s: 24 - 16 - 1.5 - 1.5 are idle.
    assert (zero.idle, zero.data, zero.peers, zero.reforming) == (5.0, 1.75, 0.5, 1.5)
    assert zero.other == 16.0 - 12.0 - 1.75 - 0.5
    assert (one.idle, one.data, one.peers, one.reforming) == (24.0 - 12.0 - 1.5 - 1.0, 0.5, 0.0, 1.5)
    assert mean_waiting((zero, one)) == (8.75 + 11.5) / 2


def test_overheads_of_a_run_that_was_cut_come_from_its_events(two_flotillas: list[Event]) -> None:
    rows = {row.name: row for row in overheads(build_history(as_events(two_flotillas)))}
    assert {name: row.seconds for name, row in rows.items()} == {
        "scheduling": 0.2,
        "profiling": 1.5,  # the second measurement lies within the first
        "checkpoint": 0.25,
        "reforming": 2.0,
    }
    assert rows["profiling"].percent == 100 * 1.5 / 24
    assert [rows[name].count for name in ("scheduling", "profiling", "checkpoint", "reforming")] == [2, 2, 1, 3]


def test_first_steps_are_counted_and_drawn_where_no_epoch_ended(two_flotillas: list[Event]) -> None:
    timed = at(4.5, "timed", job="c", devices=[0], count=1, rate=30.0, batches=20, seconds=0.3)
    guessed = at(2, "rates", job="c", source="guessed", measured={"1": 1e6}, fitted=[1e6])
    history = build_history(as_events([*two_flotillas[:8], guessed, timed, *two_flotillas[8:]]))
    assert {row.name: row.count for row in overheads(history)}["profiling"] == 3
    (row,) = [row for row in job_rates(history) if row.job == "c"]
    assert row.trained[1] == 30.0 and 1 not in row.profiled, "a guess is no measurement"


def test_overheads_that_the_run_wrote_at_its_end_are_taken(two_flotillas: list[Event]) -> None:
    seconds = {"profiling": 5.0, "scheduling": 1.0, "checkpoint": 2.0, "reforming": 0.5}
    history = build_history(
        as_events([*two_flotillas, at(25, "ended", status="failed", wall_seconds=25, overhead_seconds=seconds)])
    )
    assert {row.name: row.seconds for row in overheads(history)} == seconds
    assert (history.status, history.wall) == ("failed", 25.0)


def test_measured_against_fitted_rates(two_flotillas: list[Event]) -> None:
    a, b, c = job_rates(build_history(as_events(two_flotillas)))
    assert (a.profiled, a.trained, a.fitted) == ({1: 90.0}, {1: 90.0}, {1: 100.0, 2: 190.0})
    assert a.difference(1) == -0.1
    assert (b.profiled, b.difference(1)) == ({1: 50.0}, None)
    assert c.trained == {2: 170.0}


def test_results_and_the_best_network(two_flotillas: list[Event]) -> None:
    history = build_history(as_events(two_flotillas))
    results = job_results(history)
    assert [(row.job.name, row.status, row.epochs, row.why) for row in results] == [
        ("a", "done", 2, "epochs"),
        ("b", "done", 1, "target"),
        ("c", "failed", 1, "ValueError: no"),
    ]
    assert [row.device_seconds for row in results] == [12.0, 8.0, 8.0]
    assert results[0].metrics == {"loss": 1.5, "accuracy": 0.625}
    assert results[2].failure is not None and results[2].failure.traceback == "T"
    best = best_network(history)
    assert best is not None and (best.job, best.metric, best.value) == ("b", "accuracy", 0.75)
    assert metric_names(results) == ("accuracy", "loss")


def test_without_accuracies_the_lowest_held_out_loss_is_best_and_nan_is_not() -> None:
    events = [
        *start(),
        epoch(1, "x", 0, devices=[0], metrics={"loss": 0.1, "test_loss": 0.9}),
        epoch(1, "y", 0, devices=[1], metrics={"loss": 0.2, "test_loss": 0.8}),
        epoch(1, "z", 0, devices=[1], metrics={"loss": 0.2, "test_loss": float("nan")}),
    ]
    best = best_network(build_history(as_events(events)))
    assert best is not None and (best.job, best.metric, best.value) == ("y", "test_loss", 0.8)


def test_a_later_session_replaces_epochs_and_its_groups_end_with_the_session() -> None:
    group: Event = {"round": 0, "job": "a", "devices": [0], "epoch": 0, "step": 0}
    times: Event = {"waited": {"0": {"data": 1.0, "peers": 0.0}}, "computed": {"0": 3.0}}
    events = [
        *start(devices=2),
        at(1, "started", seconds=0.5, **group),
        epoch(5, "a", 0, round=0, devices=[0], metrics={"loss": 2.0}, **times),
        at(7, "warning", text="last word", job="a"),
        *start(devices=1, session=1, t=7.0),
        at(8, "started", seconds=5.0, **group),
        epoch(12, "a", 0, round=0, devices=[0], metrics={"loss": 1.0}, **times),
        at(12, "stopped", round=0, job="a", devices=[0], epoch=1, step=10, why="signal"),
        at(12, "ended", status="stopped", wall_seconds=12.0, overhead_seconds={}),
    ]
    history = build_history(as_events(events))
    assert [(s.start, s.end, s.ended and s.ended.status) for s in history.sessions] == [
        (0.0, 7.0, None),
        (7.0, 12.0, "stopped"),
    ]
    assert [(s.start, s.end, s.outcome, s.session) for s in history.spans] == [(1, 7, "cut", 0), (8, 12, "stopped", 1)]
    assert [e.metrics["loss"] for e in history.epochs] == [1.0]
    assert [e.metrics["loss"] for e in history.superseded] == [2.0]
    assert [row.label for row in flotillas(history)] == ["0 (session 0)", "0 (session 1)"]
    assert job_results(history)[0].status == "stopped"
    zero, one = device_times(history)
    assert (zero.computing, zero.data) == (6.0, 2.0)  # lost work took its time all the same
    assert zero.reforming == 0.5 + 1.0  # of 5 s only 1 s lies within the session
    assert (one.reserved, one.idle) == (7.0, 7.0)  # the second session did not have it


def test_a_job_that_failed_and_then_succeeded_is_done() -> None:
    events = [
        *start(),
        at(1, "failed", round=0, job="a", devices=[0], epoch=0, error="E", traceback=""),
        at(2, "done", round=1, job="a", devices=[0], epoch=1, why="epochs", metrics={}, checkpoint="p"),
    ]
    (result,) = job_results(build_history(as_events(events)))
    assert (result.status, result.failure, result.checkpoint) == ("done", None, "p")


def test_a_job_without_a_last_word_runs_until_its_session_is_over() -> None:
    events = [*start(), at(1, "started", round=0, job="a", devices=[0], epoch=0, step=0, seconds=0)]
    assert job_results(build_history(as_events(events)))[0].status == "running"
    assert job_results(build_history(as_events([*events, *start(session=1, t=2.0)])))[0].status == "stopped"


def test_a_torn_last_line_is_ignored(simulated: Callable[..., list[Event]], write_journal: Callable[..., Path]) -> None:
    events = simulated(jobs=3)
    torn = write_journal(events, tail='{"t": 99999, "event": "failed", "job": "net-0", "err')
    read, built = read_history(torn / "journal.jsonl"), build_history(as_events(events))
    assert (read.epochs, read.spans, read.jobs, read.wall) == (built.epochs, built.spans, built.jobs, built.wall)


def test_unknown_events_and_a_missing_session_line_are_survived() -> None:
    history = build_history(
        as_events([at(1, "new kind", job="a"), at(2, "started", job="b", round=0, devices=[3], epoch=0)])
    )
    assert history.devices == (3,)
    assert list(history.jobs) == ["b"]


def test_an_empty_journal_is_an_empty_history(tmp_path: Path) -> None:
    history = read_history(tmp_path / "none.jsonl")
    assert (history.wall, history.status, history.devices) == (0.0, "unfinished", ())
    assert not flotillas(history) and not device_times(history) and not job_results(history)


def test_a_simulated_run_adds_up(simulated: Callable[..., list[Event]]) -> None:
    history = build_history(as_events(simulated(jobs=8, failing=(3,), killed_after=60)))
    assert len(history.sessions) == 2 and history.superseded
    assert {result.status for result in job_results(history)} == {"done", "failed"}
    check_sums(history)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 200))
def test_a_run_that_is_cut_anywhere_still_adds_up(simulated: Callable[..., list[Event]], cut: int) -> None:
    check_sums(
        build_history(as_events(simulated(jobs=5, devices_per_node=(2, 1), failing=(1,), killed_after=30)[:cut]))
    )


def check_sums(history: Any) -> None:
    for time in device_times(history):
        parts = time.computing + time.waiting + time.profiling + time.other
        assert parts == pytest.approx(time.reserved)
        assert min(time.idle, time.data, time.peers, time.reforming, time.other) >= 0
    spans = sum(span.seconds for span in history.spans)
    assert sum(result.device_seconds for result in job_results(history)) == pytest.approx(spans)
    for flotilla in flotillas(history):
        assert (flotilla.mean is None) == (not flotilla.lengths)
