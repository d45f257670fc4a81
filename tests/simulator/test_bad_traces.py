"""What people bring that is no trace: one report tells of everything, with place, value, rule and mend."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.simulator.machines.machine import check_rates
from fleet.simulator.machines.rate_tables import read_rate_table
from fleet.simulator.traces import TraceError, TraceJob, TraceProblem, read_trace
from tests.simulator.support import trace_files
from tests.simulator.support.trace_files import written

HEADER = trace_files.ELASTICFLOW.splitlines()[0]


def problems(path: Path, format: str | None = None) -> tuple[TraceProblem, ...]:
    with pytest.raises(TraceError) as caught:
        read_trace(path, format)
    assert all(
        problem.rule and problem.mend and problem.file.startswith(str(path)) for problem in caught.value.problems
    )
    return caught.value.problems


def test_every_bad_cell_of_a_file_is_in_one_report(tmp_path: Path) -> None:
    rows = [
        "a,100,100,vgg16,250,128,1,100",
        "b,-5,100,vgg16,250,128,1,100",
        "c,100,nan,vgg16,250,128,1,100",
        "d,100,100,vgg16,250,128,0,100",
        "a,100,100,vgg16,250,128,1,100",
        "f,100,100,vgg16,50,128,1,100",
        "g,100,100,,250,12.5,1,inf",
        "h,100,1_000,vgg16,250,128,one,",
    ]
    found = problems(written(tmp_path, "\n".join([HEADER, *rows])))
    assert [(problem.line, problem.column, problem.value) for problem in found] == [
        (3, "submission_time", "-5"),
        (4, "num_iteration", "nan"),
        (5, "num_gpu", "0"),
        (6, "job_id", "a"),
        (7, "deadline", "50"),
        (8, "batch_size", "12.5"),
        (8, "model_name", ""),
        (8, "duration", "inf"),
        (9, "num_iteration", "1_000"),
        (9, "num_gpu", "one"),
        (9, "duration", ""),
    ]
    assert "a whole number, 1 or more" in found[2].rule
    assert "line 2 has the same" in found[3].rule


def test_the_report_shows_twenty_problems_and_counts_the_others(tmp_path: Path) -> None:
    rows = [f"j{i},100,100,vgg16,250,128,0,100" for i in range(50)]
    with pytest.raises(TraceError) as caught:
        read_trace(written(tmp_path, "\n".join([HEADER, *rows])))
    lines = str(caught.value).splitlines()
    assert (len(caught.value.problems), len(lines)) == (50, 22)
    assert (lines[0], lines[-1]) == ("50 problems", "  and 30 more")


@pytest.mark.parametrize("missing", HEADER.split(","))
def test_a_missing_column_is_named(tmp_path: Path, missing: str) -> None:
    rows = [line.split(",") for line in trace_files.ELASTICFLOW.splitlines()]
    place = rows[0].index(missing)
    text = "\n".join(",".join(row[:place] + row[place + 1 :]) for row in rows)
    (problem,) = problems(written(tmp_path, text))
    assert (problem.line, problem.column) == (1, missing)
    assert "format elasticflow needs it" in problem.rule


def test_columns_of_no_known_format_are_told_what_is_known(tmp_path: Path) -> None:
    (problem,) = problems(written(tmp_path, "colour,size\nred,3\n"))
    assert "colour, size" in problem.rule
    assert all(format in problem.mend for format in ("elasticflow", "easyscale", "pollux", "philly", "fleet"))


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("empty.csv", b"", "the file is empty"),
        ("blank.csv", b"\n\n", "the file is empty"),
        ("header.csv", HEADER.encode(), "nothing below it"),
        ("picture.csv", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "no comma-separated text"),
        ("zeros.csv", b"\0\0\n\0\0\n", "no comma-separated text"),
        ("wide.csv", b"name,arrival,devices\na,0,1,7\n", "4 cells, but the header names 3"),
        ("twice.csv", b"name,arrival,devices,name\na,0,1,b\n", "two columns have this name"),
        ("prose.md", b"# Jobs\nfirst, second, third\none, two\n", "holds no comma"),
        ("tabs.csv", b"name\tarrival\tdevices\na\t0\t1\n", "holds no comma"),
        ("log.json", b"{", "this is no JSON"),
        ("list.json", b"[]", "a JSON list of jobs"),
        ("journal.jsonl", b"{}\n", "there is no job in it"),
    ],
)
def test_files_that_are_no_traces(tmp_path: Path, name: str, content: bytes, rule: str) -> None:
    (tmp_path / name).write_bytes(content)
    (problem,) = problems(tmp_path / name)
    assert rule in problem.rule


def test_what_is_not_there_and_what_is_no_file(tmp_path: Path) -> None:
    assert "cannot be read" in problems(tmp_path / "gone.csv")[0].rule
    assert "cannot be read" in problems(tmp_path / "gone.json")[0].rule
    assert "no such file" in problems(tmp_path)[0].rule
    assert "cannot be read" in problems(tmp_path, "pollux")[0].rule


def test_a_date_among_dates_must_be_one(tmp_path: Path) -> None:
    (problem,) = problems(written(tmp_path, trace_files.PHILLY.replace("2017-10-08 07", "2017-13-08 07")))
    assert (problem.line, problem.column) == (4, "timestamp")


def test_wrong_entries_of_a_philly_log(tmp_path: Path) -> None:
    attempt = {"start_time": "2017-10-07 02:00:00", "end_time": "2017-10-07 01:00:00", "detail": []}
    good = {"jobid": "x", "submitted_time": "2017-10-07 00:00:00", "attempts": [attempt]}
    log = [good, {"jobid": "y", "submitted_time": None, "attempts": [attempt]}, {"jobid": "z"}, 7]
    found = problems(written(tmp_path, json.dumps(log), "log.json"))
    rules = [problem.rule.split(": ", 1) for problem in found]
    assert [rule for rule in rules if rule[0].startswith("job 1")] == [
        ["job 1 of the list", "an attempt must end after it began"],
        ["job 1 of the list", "no attempt held a GPU"],
    ]
    assert ["job 2 of the list", "this is no date such as 2017-10-07 01:12:09"] in rules
    assert ["job 3 of the list", "there is no such key"] in rules
    assert any(rule[0] == "job 4 of the list" for rule in rules)


def test_a_journal_of_another_make_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, '{"event": "job", "t": 0, "job": "a"}\n', "journal.jsonl")
    assert "cannot be understood" in problems(path)[0].rule


def test_fleets_own_traces_say_yes_or_no(tmp_path: Path) -> None:
    (problem,) = problems(written(tmp_path, "name,arrival,devices,mixed\na,0,1,perhaps\n"))
    assert (problem.line, problem.column, problem.value) == (2, "mixed", "perhaps")


def test_jobs_without_rates_are_told_of_once_for_each_model_and_batch(tmp_path: Path) -> None:
    rates = read_rate_table(written(tmp_path, trace_files.RATES, "rates/bert.csv").parent)
    trace = read_trace(
        written(tmp_path, trace_files.ELASTICFLOW + "d,900,50,bert,990,256,2,40\ne,900,9,vgg16,,128,1,9")
    )
    with pytest.raises(TraceError) as caught:
        check_rates(trace, rates)
    found = [(problem.line, problem.column, problem.value) for problem in caught.value.problems]
    assert found == [(3, "model", "vgg16 128"), (5, "model", "bert 256")]
    assert "known: bert" in caught.value.problems[0].rule
    assert "nearest: 128" in caught.value.problems[1].rule


@pytest.mark.parametrize(
    "wrong",
    [{"arrival": -1.0}, {"devices": 0}, {"deadline": 4.0}, {"work": 0.0}, {"limit": 0}, {"duration": float("nan")}],
)
def test_a_job_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"job a: {next(iter(wrong))} "):
        TraceJob(**dict[str, Any](name="a", arrival=5.0, devices=1) | wrong)


cells = st.text(max_size=4) | st.integers(-3, 300).map(str) | st.floats().map(str)


@given(rows=st.lists(st.lists(cells, min_size=8, max_size=8).map(",".join), min_size=1, max_size=4))
def test_any_text_is_a_trace_or_a_report(tmp_path_factory: pytest.TempPathFactory, rows: list[str]) -> None:
    path = tmp_path_factory.mktemp("traces") / "trace.csv"
    path.write_text("\n".join([HEADER, *rows]), encoding="utf-8", errors="replace", newline="")
    try:
        assert all(job.devices >= 1 and job.work and job.arrival >= 0 for job in read_trace(path))
    except TraceError as error:
        assert error.problems
