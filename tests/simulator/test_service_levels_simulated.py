"""Traces and specs whose jobs are promised devices in the mean of windows: read, refused, held and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.session.dry_run import make_plan
from fleet.simulator.traces import Trace, TraceError, TraceJob, read_trace, write_trace
from fleet.simulator.traces.trace import JobColumns
from fleet.spec import SpecError, check, load
from tests.live.support.arriving import Arriving, write_spec
from tests.simulator.support.trace_files import written
from tests.simulator.test_reading_traces import job_event, journal
from tests.simulator.test_simulate_command import simulate, told

HEAD = "name,arrival,devices,duration,service_devices,service_window\n"
ALONE = HEAD + "a,0,1,400,,\nb,0,1,400,,\n"
HALVES = HEAD + "a,0,1,400,0.5,100\nb,0,1,400,0.5,100\n"
WORDS = ("--cluster", "1x1", "--policy", "easyscale")


def test_two_halves_of_a_device_take_turns_in_the_simulator(tmp_path: Path) -> None:
    apart = told("--trace", written(tmp_path, ALONE), *WORDS)
    turns = told("--trace", written(tmp_path, HALVES, "halves.csv"), *WORDS)
    assert (apart["avg_jct"], apart["restarts"], apart["service_windows"]) == (600.0, 0, 0)
    assert turns["avg_jct"] == 775.0 and turns["makespan"] == 800.0 and turns["restarts"] > 4
    assert (turns["service_windows"], turns["broken_service_windows"]) == (14, 0)


def test_promises_of_more_than_there_is_are_broken_and_counted(tmp_path: Path) -> None:
    found = told("--trace", written(tmp_path, HALVES.replace("0.5,100\nb", "1,100\nb")), *WORDS)
    assert 0 < found["broken_service_windows"] < found["service_windows"]


def test_moves_count_as_served_but_within_the_tolerance_alone_may_devices_be_missing(tmp_path: Path) -> None:
    slow = told("--trace", written(tmp_path, HALVES), *WORDS, "--restart-seconds", "5")
    assert slow["broken_service_windows"] == 0 and slow["makespan"] > 800.0


def test_a_policy_that_holds_no_promise_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    code, _, error = simulate("--trace", written(tmp_path, HALVES), "--cluster", "1x1", "--policy", "fifo")
    assert code == 2 and "job a is promised a service level, but policy fifo promises no job" in error
    assert "easyscale does" in error and "take service_devices and service_window from the trace" in error


def test_half_a_promise_is_told_with_its_cell(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(written(tmp_path, HEAD + "a,0,1,400,0.5,\nb,0,1,400,1,100\n"))
    assert [(problem.line, problem.column) for problem in caught.value.problems] == [(2, "service_devices")]
    with pytest.raises(ValueError, match="give both, or none"):
        TraceJob("a", 0.0, 1, service_window=1.0)


def test_a_trace_is_written_and_read_again(tmp_path: Path) -> None:
    jobs = [TraceJob("a", 0.0, 1, duration=5.0, service_devices=0.5, service_window=60.0), TraceJob("b", 1.0, 2)]
    write_trace(Trace.of(JobColumns.from_jobs(jobs), "here"), tmp_path / "trace.csv")
    read = read_trace(tmp_path / "trace.csv").jobs
    assert [job.service_level for job in read] == [job.service_level for job in jobs]


def test_a_journal_tells_it(tmp_path: Path) -> None:
    rates = [{"t": 0.2, "event": "rates", "job": job, "measured": {"1": 10.0}} for job in "ab"]
    promised = {"devices": 0.5, "window": 60.0}
    events = (
        {"t": 0.0, "event": "cluster", "devices_per_node": [4], "ranks": []},
        job_event("a"), job_event("b", service_level=promised), *rates,
    )  # fmt: skip
    jobs = read_trace(journal(tmp_path, *events)).jobs
    assert [(job.service_devices, job.service_window) for job in jobs] == [(None, None), (0.5, 60.0)]


def promised_spec(folder: Path, levels: list[float], policy: str = "easyscale", **keys: Any) -> Path:
    """Two jobs on one device each, which train for 100 s alone."""
    jobs = [Arriving(name, 1, 10, 0.0, 1e6, 0, {1: 48.0}) for name in "ab"]
    path = write_spec(folder, jobs)
    values = yaml.safe_load(path.read_text())
    for job, level in zip(values["jobs"], levels):
        job |= {"service_level": {"devices": level, "window": 20.0}, **keys}
    values["policy"] = {"name": policy, "restart": 0.0}
    path.write_text(yaml.safe_dump(values))
    return path


def test_a_plan_lets_them_take_turns_and_tells_what_would_be_broken(tmp_path: Path) -> None:
    kept = make_plan(load(promised_spec(tmp_path, [0.5, 0.5])), (1,))
    assert len(kept.rounds) > 6 and not kept.broken
    broken = make_plan(load(promised_spec(tmp_path, [1.0, 0.5])), (1,))
    assert broken.broken and {window["job"] for window in broken.to_json()["broken_service"]} <= {"a", "b"}


@pytest.mark.parametrize(
    ("levels", "keys", "rule"),
    [
        ([2.0], {}, "service_level promises 2 devices, more than the 1 of virtual_workers"),
        ([0.5], {"guaranteed": True}, "a guaranteed job has all its devices at once"),
        ([0.0], {}, "must be more than 0"),
    ],
)
def test_what_cannot_be_promised_is_refused(
    tmp_path: Path, levels: list[float], keys: dict[str, Any], rule: str
) -> None:
    with pytest.raises(SpecError, match=rule):
        load(promised_spec(tmp_path, levels, **keys))


def test_a_policy_that_holds_none_is_refused_and_so_is_more_than_there_is(tmp_path: Path) -> None:
    (problem,) = check(load(promised_spec(tmp_path, [0.5], "flotilla")))
    assert problem.rule == "policy flotilla promises no job a part of the devices; easyscale does"
    path = promised_spec(tmp_path, [2.0], virtual_workers=4)
    with pytest.raises(SpecError, match="there are 1 trainers"):
        make_plan(load(path), (1,))
