"""Traces of every format, found by their columns."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.data_path import Feed
from fleet.simulator.traces import JobColumns, Trace, TraceError, TraceJob, read_trace, write_trace
from tests.simulator.support import trace_files
from tests.simulator.support.trace_files import written


@pytest.mark.parametrize("text", [trace_files.ELASTICFLOW, trace_files.SHORT])
def test_both_headings_of_elasticflow_give_the_same_jobs(tmp_path: Path, text: str) -> None:
    trace = read_trace(written(tmp_path, text))
    assert (trace.format, trace.offset, len(trace)) == ("elasticflow", 100.0, 3)
    assert list(trace.jobs)[:2] == [
        TraceJob("a", 0, 1, "vgg16", 128, work=100, samples=12800, deadline=150, duration=100),
        TraceJob("b", 100, 4, "bert", 64, work=300, samples=19200, deadline=800, duration=600),
    ]


def test_jobs_that_arrive_together_keep_the_order_of_the_file(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, trace_files.ELASTICFLOW))
    assert [(job.name, job.line) for job in trace] == [("a", 3), ("b", 2), ("c", 4)]


def test_a_job_without_a_deadline_is_best_effort(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, trace_files.ELASTICFLOW.replace("250", "")))
    assert [job.deadline for job in trace] == [None, 800, 160]


def test_the_batch_of_easyscale_is_that_of_one_virtual_worker(tmp_path: Path) -> None:
    first = read_trace(written(tmp_path, trace_files.EASYSCALE)).jobs[0]
    assert (first.devices, first.limit, first.workers, first.batch_size) == (16, 16, 16, 128)
    assert (first.kind, first.mixed, first.epochs) == ("v100", True, 4)
    assert first.samples == pytest.approx(4 * 886.41)
    assert first.work == pytest.approx(4 * 886.41 / 128)


def test_easyscale_says_who_may_run_on_mixed_kinds(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, trace_files.EASYSCALE))
    assert [job.mixed for job in trace] == [True, False, True, True]


def test_names_that_easyscale_repeats_are_numbered(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, trace_files.EASYSCALE))
    assert [job.name for job in trace] == ["bert-0", "yolov3-6", "swin-60", "bert-0#2"]
    assert "1 rows repeat a name" in trace.notes[0]


def test_as_simulated_the_later_row_of_a_name_takes_the_place_of_the_earlier(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, trace_files.EASYSCALE), "easyscale-as-simulated")
    assert [(job.name, job.devices) for job in trace] == [("yolov3-6", 8), ("swin-60", 32), ("bert-0", 4)]


def test_a_workload_of_pollux_does_not_say_how_much_there_is_to_do(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, trace_files.POLLUX))
    assert trace.format == "pollux"
    assert trace.jobs[1] == TraceJob("bert-1", 101, 8, "bert", 384)


def test_dates_become_seconds_and_nameless_jobs_are_numbered_by_line(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, trace_files.PHILLY))
    assert list(trace.jobs) == [
        TraceJob("job-4", 0, 8, duration=2951, tenant="6214e9"),
        TraceJob("job-2", 86400, 1, duration=66, tenant="11cb48"),
    ]
    assert trace.offset == 1_507_446_115


def attempt(start: Any, end: Any, *gpus: int) -> dict[str, Any]:
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{g}" for g in range(count)]} for i, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def philly_job(name: str, *attempts: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": name,
        "attempts": list(attempts),
        "submitted_time": "2017-10-07 01:11:39",
        "user": "ce2f4c",
    }


def test_a_job_of_the_philly_log_lasts_as_long_as_its_attempts(tmp_path: Path) -> None:
    attempts = (
        attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8),
        attempt("2017-10-07 01:13:30", "2017-10-07 02:13:30", 8, 4),
        attempt("2017-10-07 03:00:00", None, 16),
    )
    log = [philly_job("x", *attempts), philly_job("never"), philly_job("lost", attempt(None, None, 1))]
    trace = read_trace(written(tmp_path, json.dumps(log), "cluster_job_log.json"))
    assert list(trace.jobs) == [TraceJob("x", 0, 12, duration=74 + 3600, tenant="ee9e8c", outcome="Pass")]
    assert trace.notes == ("2 jobs without an attempt that began and ended were left out",)


def test_a_dozen_lines_by_hand_are_a_trace(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "name,arrival,devices,batch_size,work,owner\na,5,2,10,30,me\nb,7,1,,,\n"))
    assert list(trace.jobs) == [TraceJob("a", 0, 2, batch_size=10, work=30, samples=300), TraceJob("b", 2, 1)]


def test_deadlines_may_be_times_of_day_where_the_start_is_known(tmp_path: Path) -> None:
    path = written(tmp_path, "name,arrival,devices,deadline\na,5,2,2026-12-01T08:00+00:00\nb,7,1,99\nc,9,1,\n")
    a, b, c = read_trace(path, start=1_796_112_000.0 - 65.0).jobs
    assert (a.deadline, b.deadline, c.deadline) == (60.0, 94.0, None)
    with pytest.raises(TraceError, match="nobody says when the trace begins.*--start"):
        read_trace(path)


def test_any_slice_and_index_of_a_trace_is_what_its_list_has(tmp_path: Path) -> None:
    jobs = read_trace(written(tmp_path, trace_files.EASYSCALE)).jobs
    assert list(jobs[1:3]) == list(jobs)[1:3]
    assert jobs[-1] == list(jobs)[-1]
    with pytest.raises(IndexError):
        jobs[4]


def test_an_unknown_format_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'pollux'"):
        read_trace(written(tmp_path, trace_files.POLLUX), "polux")


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
positive = st.floats(min_value=1e-3, max_value=1e12)
counts = st.integers(1, 10**6)
OTHERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {key: st.none() | counts for key in ("batch_size", "limit", "workers")}
    | {key: st.none() | positive for key in ("duration", "epochs")}
    | dict.fromkeys(("kind", "stream", "tenant", "outcome"), texts)
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    names = draw(st.lists(texts.filter(str.strip), min_size=1, max_size=6, unique=True))
    arrivals = [0.0, *sorted(draw(st.lists(positive, min_size=len(names) - 1, max_size=len(names) - 1)))]
    jobs = [
        TraceJob(
            name,
            arrival,
            devices := draw(counts),
            draw(texts),
            minimum_devices=draw(st.none() | st.integers(1, devices)),
            deadline=None if (seconds := draw(st.none() | positive)) is None else arrival + seconds,
            priority=draw(st.integers(-9, 9)),
            mixed=draw(st.booleans()),
            **draw(OTHERS),
        )
        for name, arrival in zip(names, arrivals)
    ]
    return Trace(JobColumns.from_jobs(jobs))


@given(trace=traces())
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, trace: Trace) -> None:
    path = tmp_path_factory.mktemp("traces") / "trace.csv"
    write_trace(trace, path)
    assert list(read_trace(path).jobs) == list(trace.jobs)
    assert [file.name for file in path.parent.iterdir()] == ["trace.csv"]


def journal(folder: Path, *events: dict[str, Any]) -> Path:
    return written(folder, "".join(json.dumps({"unix": 0, **event}) + "\n" for event in events), "journal.jsonl").parent


def job_event(name: str, t: float = 0.1, **others: Any) -> dict[str, Any]:
    told = {"virtual_workers": 4, "batch_size": 8, "samples": 100, "max_epochs": 9, "data": "digits", "seed": 3}
    return {"t": t, "event": "job", "job": name, **told, **others}


def epoch_event(name: str, epoch: int, devices: list[int]) -> dict[str, Any]:
    told = {"epoch": epoch, "step": 4 * epoch, "devices": devices, "metrics": {}}
    return {"t": 9.0, "event": "epoch", "job": name, **told}


def test_a_run_is_read_as_the_trace_of_what_it_trained(tmp_path: Path) -> None:
    events = (
        {"t": 0.0, "event": "cluster", "devices_per_node": [2, 3], "ranks": []},
        job_event("a"),
        job_event("b"),
        job_event("idle"),
        {"t": 0.2, "event": "rates", "job": "a", "measured": {"1": 10.0, "2": 18.0}},
        {"t": 0.2, "event": "rates", "job": "b", "measured": {"1": 50.0}},
        {"t": 0.3, "event": "planned", "allocation": {"a": [0], "b": [1]}},
        epoch_event("a", 1, [0]),
        epoch_event("a", 2, [0, 1]),
        epoch_event("a", 2, [0, 2]),
        epoch_event("a", 3, [0, 1]),
        {"t": 9.5, "event": "rates", "job": "a", "measured": {"1": 10.0, "2": 20.0}},
        {"t": 9.9, "event": "done", "job": "a", "epoch": 3},
        job_event("late", t=12.0),
        {"t": 12.1, "event": "rates", "job": "late", "measured": {"1": 5.0}},
        job_event("a", t=99.0),
    )
    trace = read_trace(journal(tmp_path, *events))
    a, b, late = trace.jobs
    assert (a.devices, a.epochs, a.samples, a.work, a.batch_size, a.outcome) == (2, 3, 300, 12, 32, "done")
    assert a.duration == pytest.approx(300 / 20)
    assert (b.epochs, b.work, b.limit, b.outcome, b.stream) == (9, 9 * 4, 4, "", "digits/3")
    assert (a.arrival, b.arrival, late.arrival) == (0, 0, 12)
    assert trace.curves["a"].measured == {1: 10, 2: 20}
    assert trace.curves["a"].per_node == 3
    assert trace.notes == ("idle: no rates or no epochs are known; it was left out",)


def test_a_run_s_rates_are_those_that_its_data_path_fed(tmp_path: Path) -> None:
    events = (
        job_event("a"),
        job_event("b", data="other"),
        *({"t": 0.2, "event": "rates", "job": job, "measured": {"1": 10.0, "2": 18.0}} for job in "ab"),
        {"t": 0.3, "event": "preprocessors", "counts": {"1": 8.0, "2": 15.0}, "of_data": {"digits": 15.0},
         "of_new": {"digits": 5.0}},
    )  # fmt: skip
    trace = read_trace(journal(tmp_path, *events))
    assert [trace.curves["a"](count) for count in (1, 2, 3)] == [10.0, 15.0, 15.0]
    assert trace.curves["b"](2) == 18.0, "nobody measured its data"
    assert trace.feeds == {"a": Feed("digits", 5.0, 15.0)}


def test_a_run_s_deadlines_are_those_of_its_first_session(tmp_path: Path) -> None:
    deadlines: list[dict[str, Any]] = [
        {"deadline": "2026-12-01T08:00:00+00:00", "due": 40.0}, {"deadline": 30.0, "due": 31.0},
        {"deadline": 30.0}, {"deadline": "2020-12-01T08:00:00+00:00", "due": -9.0}, {"deadline": None, "due": None},
    ]  # fmt: skip
    names = "abcde"
    events: list[dict[str, Any]] = [job_event(name) | each for name, each in zip(names, deadlines)]
    events += [{"t": 0.2, "event": "rates", "job": name, "measured": {"1": 10.0}} for name in names]
    jobs = read_trace(journal(tmp_path, *events)).jobs
    assert [job.deadline for job in jobs] == [40.0, 31.0, 30.0, 0.0, None]
