"""Traces whose jobs need several devices at least: read, written, refused where they cannot be, and kept to."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.simulator.traces import TraceError, TraceJob, read_trace
from tests.simulator.support.trace_files import written
from tests.simulator.test_reading_traces import epoch_event, job_event, journal
from tests.simulator.test_simulate_command import simulate, told

TRACE = "name,arrival,devices,duration,minimum_devices\na,0,2,100,\nb,70,4,50,3\n"


def test_a_job_waits_for_its_least_under_an_elastic_policy(tmp_path: Path) -> None:
    loose, strict = written(tmp_path, TRACE.replace(",3\n", ",\n")), written(tmp_path, TRACE, "strict.csv")
    words = ("--cluster", "1x4", "--policy", "easyscale:growth=2", "--restart-seconds", "1")
    free, kept = told("--trace", loose, *words), told("--trace", strict, *words)
    assert free["avg_wait"] == 0 < kept["avg_wait"]


def test_a_policy_that_does_not_keep_it_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    code, _, error = simulate("--trace", written(tmp_path, TRACE), "--cluster", "1x4", "--policy", "optimus")
    assert code == 2 and "job b has minimum_devices, but policy optimus gives" in error
    assert "leave such policies out, or take minimum_devices from the trace" in error
    assert simulate("--trace", written(tmp_path, TRACE), "--cluster", "1x4", "--policy", "fifo")[0] == 0


def test_what_no_job_can_have_is_told_with_its_cell(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(written(tmp_path, TRACE.replace(",3\n", ",5\n") + "c,2,1,9,0\n"))
    assert [(problem.line, problem.column, problem.value) for problem in caught.value.problems] == [
        (3, "minimum_devices", "5"),
        (4, "minimum_devices", "0"),
    ]
    with pytest.raises(ValueError, match="minimum_devices 3 are more than the 2 devices"):
        TraceJob("a", 0.0, 2, minimum_devices=3)


def test_a_journal_tells_it(tmp_path: Path) -> None:
    rates = [{"t": 0.2, "event": "rates", "job": job, "measured": {"1": 10.0, "2": 18.0}} for job in "abc"]
    events = (
        {"t": 0.0, "event": "cluster", "devices_per_node": [4], "ranks": []},
        job_event("a"), job_event("b", minimum_devices=2), job_event("c", minimum_devices=3), *rates,
        {"t": 0.3, "event": "planned", "allocation": {"b": [0, 1]}}, epoch_event("b", 1, [0, 1]),
    )  # fmt: skip
    jobs = read_trace(journal(tmp_path, *events)).jobs
    assert [(job.minimum_devices, job.devices) for job in jobs] == [(None, 1), (2, 2), (3, 3)]
