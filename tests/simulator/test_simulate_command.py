"""`fleet simulate`: every policy and seed in one call; what is wrong is told in one report, with exit code 2."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fleet.commands.cli import app
from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.comparing.compared_policies import SimulationFailed
from fleet.simulator.machines.machine import Costs, MeasuredMachine
from fleet.simulator.machines.rate_tables import read_rates
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import read_trace
from fleet.spec.policies import policy
from tests.scheduling.support.all_policies import NAMES
from tests.simulator.support import trace_files
from tests.simulator.support.published import published
from tests.simulator.support.trace_files import written

CONTRACT = (
    "policy", "jobs", "admitted", "late_admitted", "deadline_ratio", "avg_jct", "p99_jct", "makespan", "finished",
    "dropped", "restarts", "gpu_hours", "seconds",
)  # fmt: skip
TRACE = """\
job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration
b,150,3000,bert,900,64,4,100
a,100,1000,bert,250,64,1,100
c,160,180,bert,200,64,2,10
"""


BOTH = ("--policy", "fifo", "--policy", "fifo:backfill=true")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A trace and a table of rates, as options."""
    trace = written(tmp_path, TRACE)
    written(tmp_path, trace_files.RATES, "rates/bert.csv")
    return ["--trace", str(trace), "--rates", str(tmp_path / "rates")]


def simulate(*words: str | Path) -> tuple[int, str, str]:
    """The exit code, and what is written to standard output and error."""
    found = CliRunner().invoke(app, ["simulate", *map(str, words)])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.stdout, found.stderr


def told(*words: str | Path) -> Any:
    code, output, error = simulate(*words, "--json")
    assert code == 0, error
    return json.loads(output)


def without_times(run: dict[str, Any]) -> dict[str, Any]:
    """A simulation's figures but for those of the wall clock."""
    return {key: value for key, value in run.items() if key not in ("seconds", "p99_plan_seconds")}


def test_one_simulation_is_one_object(files: list[str]) -> None:
    found = told(*files, "--cluster", "1x8", "--policy", "fifo")
    assert set(CONTRACT) <= set(found) and (found["policy"], found["seed"], found["parameters"]) == ("fifo", 0, {})
    trace, rates = read_trace(files[1]), read_rates(files[3])
    outcome = Simulation(trace, MeasuredMachine(Cluster((8,)), rates), policy("fifo")).run()
    assert without_times(found).items() >= without_times(outcome.summary()).items()


def test_several_simulations_stand_side_by_side_in_their_order(files: list[str]) -> None:
    words = (
        *files,
        "--cluster",
        "1x4",
        "--policy",
        "fifo",
        "--policy",
        "fifo:backfill=true",
        "--seed",
        "3",
        "--seed",
        "1",
    )
    found = told(*words, "--processes", "1")["runs"]
    assert [(run["parameters"], run["seed"]) for run in found] == [
        ({}, 3), ({}, 1), ({"backfill": True}, 3), ({"backfill": True}, 1),
    ]  # fmt: skip
    assert found[0]["avg_jct"] != found[2]["avg_jct"]
    apart = told(*words, "--processes", "2")["runs"]
    assert [without_times(run) for run in apart] == [without_times(run) for run in found]


def test_parameters_go_to_the_policies_that_have_them(files: list[str]) -> None:
    words = (*files, "--cluster", "1x4", "--processes", "1", "--policy", "fifo", "--policy", "baseline")
    for setting in ("backfill=true", "fifo.backfill=true"):
        runs = told(*words, "--set", setting)["runs"]
        assert [run["parameters"] for run in runs] == [{"backfill": True}, {}]


def test_a_list_is_a_parameter_too(files: list[str]) -> None:
    words = (*files, "--cluster", "1x4", "--policy", "tiresias:thresholds=[50, 90]")
    assert told(*words)["parameters"] == {"thresholds": [50, 90]}
    assert "tiresias thresholds=50/90" in simulate(*words)[1]


def test_tables_that_are_too_wide_stand_below_each_other(files: list[str]) -> None:
    many = [word for quantum in range(10, 22) for word in ("--policy", f"gandiva:quantum={quantum}")]
    code, output, error = simulate(*files, "--cluster", "1x4", "--processes", "1", *many)
    assert code == 0, error
    lines = output.splitlines()
    assert sum("mean completion time" in line for line in lines) > 1 and max(map(len, lines)) <= 200
    assert all(output.count(f"gandiva quantum={quantum} ") == 1 for quantum in range(10, 22))


def test_costs_and_failures_are_played(files: list[str], tmp_path: Path) -> None:
    words = (*files, "--cluster", "2x4", "--policy", "fifo")
    free, costly = told(*words), told(*words, "--start-seconds", "20", "--restart-seconds", "30")
    assert costly["avg_jct"] >= free["avg_jct"] + 20
    fails = written(tmp_path, "time,node,until\n65,0,75\n66,1,75\n", "failures.csv")
    failing = told(*words, "--failures", fails, "--restart-seconds", "30")
    assert failing["restarts"] == 3 and failing["makespan"] > free["makespan"]
    drawn = (*words, "--failures", "mean=500,repair=100,until=5000")
    assert without_times(told(*drawn)) == without_times(told(*drawn)) != without_times(told(*drawn, "--seed", "1"))


def test_jobs_that_are_never_done_are_told_of(tmp_path: Path) -> None:
    trace = written(tmp_path, "name,arrival,devices,duration\na,0,2,100\nb,1,2,100\n")
    fails = written(tmp_path, "time,node,until\n5,0,\n", "failures.csv")
    code, output, _ = simulate("--trace", trace, "--cluster", "1x2", "--policy", "fifo", "--failures", fails)
    assert code == 0 and "note: fifo, seed 0: 2 jobs were never done" in output


def test_a_trace_without_models_is_played_by_its_durations_or_gets_models(tmp_path: Path) -> None:
    trace = written(tmp_path, trace_files.PHILLY)
    written(tmp_path, trace_files.RATES, "rates/bert.csv")
    code, output, _ = simulate("--trace", trace, "--cluster", "1x8", "--policy", "fifo")
    assert code == 0 and "note: no rates are given: a job trains as long as the trace says" in output
    words = ("--trace", trace, "--rates", tmp_path / "rates", "--cluster", "1x8", "--policy", "fifo")
    code, _, error = simulate(*words)
    assert code == 2 and "the trace names no model" in error and "--draw-models" in error
    drawn = told(*words, "--draw-models", "--tightness", "2,2")
    assert (drawn["finished"], drawn["deadline_ratio"]) == (2, 1.0)


def test_jobs_can_be_drawn(files: list[str]) -> None:
    words = ("--synthetic", "jobs=40,gap=5,sizes={1: 1, 2: 1},tightness=[1, 2]", *files[2:], "--cluster", "2x4")
    one, other = (told(*words, "--policy", "fifo", "--seed", seed) for seed in ("1", "2"))
    assert (one["jobs"], one["finished"]) == (40, 40) and one["avg_jct"] != other["avg_jct"]


def journal(folder: Path) -> Path:
    """The directory of a run that trained two networks."""
    common = {"virtual_workers": 4, "batch_size": 8, "samples": 100, "max_epochs": 9, "data": "digits"}
    events: list[dict[str, Any]] = [
        {"event": "cluster", "devices_per_node": [0, 2, 2], "ranks": []},
        *({"event": "job", "job": name, **common} for name in "ab"),
        {"event": "rates", "job": "a", "measured": {"1": 10.0, "2": 18.0}},
        {"event": "rates", "job": "b", "measured": {"1": 50.0}},
        {"event": "planned", "allocation": {"a": [0], "b": [1]}},
    ]
    text = "".join(json.dumps({"t": 0.1, "unix": 0, **event}) + "\n" for event in events)
    (folder / "run.json").write_text(json.dumps({"policy": "flotilla", "status": "done", "wall_seconds": 91.25}))
    return written(folder, text, "journal.jsonl").parent


def test_another_policy_plays_what_a_run_trained(tmp_path: Path) -> None:
    run = journal(tmp_path)
    found = told("--run", run, "--policy", "fifo")
    assert found["jobs"] == 2 and found["makespan"] == pytest.approx(900 / 10)
    assert found["avg_jct"] == pytest.approx((900 / 10 + 900 / 50) / 2)
    crowded = told("--run", run, "--policy", "fifo", "--cluster", "1x1")
    assert crowded["makespan"] == pytest.approx(900 / 10 + 900 / 50)
    assert "note: the run itself: policy flotilla, done after 91.2 s" in simulate("--run", run, "--policy", "fifo")[1]
    code, _, error = simulate("--run", run, "--policy", "fifo", "--out", run)
    assert code == 2 and "holds a run" in error


def test_a_run_s_jobs_lose_what_forming_their_groups_took_unless_told_otherwise(tmp_path: Path) -> None:
    run = journal(tmp_path)
    with open(run / "journal.jsonl", "a") as file:
        for job, seconds in (("a", 2.0), ("b", 4.0), ("a", 7.0)):
            file.write(json.dumps({"t": 1, "unix": 0, "event": "formed", "job": job, "seconds": seconds}) + "\n")
    assert told("--run", run, "--policy", "fifo")["makespan"] == pytest.approx(900 / 10 + 3)
    given = told("--run", run, "--policy", "fifo", "--start-seconds", "0")
    assert given["makespan"] == pytest.approx(900 / 10)
    _, printed, _ = simulate("--run", run, "--policy", "fifo")
    assert "note: a job loses 3 s with its first devices, 7 s with each change of them" in printed


def test_jobs_that_share_samples_pace_each_other_but_for_the_slack(tmp_path: Path) -> None:
    words = ("--run", journal(tmp_path), "--policy", "homogeneous", "--cluster", "1x2")
    locked, slack, loose = (told(*words, "--slack", samples) for samples in ("0", "400", "10000"))
    # b, at 50 samples/s, waits for a, at 10; with a slack of 400 it is 400 samples ahead after 10 s.
    assert locked["avg_jct"] == pytest.approx(90)
    assert slack["avg_jct"] == pytest.approx((90 + 50) / 2)
    assert loose["avg_jct"] == pytest.approx((90 + 18) / 2)


def test_a_guaranteed_job_takes_devices_at_once(tmp_path: Path) -> None:
    trace = written(tmp_path, "name,arrival,devices,duration,priority\na,0,4,100,0\nserves,50,2,10,9\n")
    words = ("--trace", trace, "--cluster", "1x4", "--policy", "easyscale")
    polite, urgent = told(*words), told(*words, "--guaranteed", "9")
    assert polite["avg_wait"] > 0 and urgent["avg_wait"] == 0 and urgent["restarts"] > 0


def test_every_job_has_a_line(files: list[str], tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    words = (*files, "--cluster", "1x4", *BOTH, "--processes", "1")
    code, _, error = simulate(*words, "--csv", file)
    assert code == 0, error
    with open(file, newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["policy"], row["job"]) for row in rows] == [
        (label, job) for label in ("fifo", "fifo backfill=true") for job in "abc"
    ]
    first = rows[0]
    assert (float(first["arrival"]), float(first["jct"]), first["in_time"]) == (0, 100, "yes")
    assert [row["in_time"] for row in rows] == ["yes", "yes", "no", "yes", "yes", "yes"]
    assert float(first["end"]) - float(first["arrival"]) == float(first["jct"])


def test_everything_goes_into_one_folder(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "made" / "here"
    code, output, error = simulate(*files, "--cluster", "1x4", "--policy", "fifo", "--out", out)
    assert code == 0, error
    names = ["devices.csv", "jobs.csv", "report.html", "simulation.json", "timeline.csv"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert set(CONTRACT) <= set(json.loads((out / "simulation.json").read_text()))
    assert f"report: {out / 'report.html'}" in output and "deadlines met" in output
    devices, timeline = (list(csv.DictReader((out / name).read_text().splitlines())) for name in (names[0], names[-1]))
    assert [(row["device"], row["node"]) for row in devices] == [(str(i), "0") for i in range(4)]
    makespan = json.loads((out / "simulation.json").read_text())["makespan"]
    assert all(float(row["held"]) + float(row["idle"]) == pytest.approx(makespan) for row in devices)
    assert [(float(row["time"]), row["devices"]) for row in timeline][:2] == [(0, "1"), (50, "1")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "fifoo"], "nearest: fifo;"),
        (["--policy", "fifo", "--set", "colour=3"], "no policy here has a parameter 'colour'"),
        (["--policy", "fifo", "--set", "tiresias.x=3"], "tiresias is not among the policies"),
        (["--policy", "fifo", "--set", "backfill"], "is no NAME=VALUE"),
        (["--policy", "fifo", "--set", "backfill=3"], "backfill is 3; it must be true or false"),
        (["--policy", "flotilla:alpha=soon"], "alpha is 'soon'; it must be a number"),
        (["--policy", "flotilla:alpha=7"], "alpha is 7; it must be a number above 0 and at most 1"),
        (["--policy", "flotilla:shape=7"], "policy flotilla has no parameter 'shape'"),
        (["--policy", "fifo", "--policy", "fifo"], "asked for twice"),
        (["--policy", "fifo", "--cluster", "16x0"], "has no device"),
        (["--policy", "fifo", "--format", "elastic"], "did you mean 'elasticflow'?"),
        (["--policy", "fifo", "--restart-seconds", "-1"], "restart is -1.0 s; it must be 0 or more"),
        (["--policy", "fifo", "--start-seconds", "nan"], "start is nan s"),
        (["--policy", "fifo", "--slack", "-1"], "slack is -1.0 samples; it must be 0 or more"),
        (["--policy", "fifo", "--processes", "0"], "--processes 0: name 1 or more"),
        (["--policy", "fifo", "--failures", "nothing.csv"], "nothing.csv: it cannot be read"),
        (["--policy", "fifo", "--failures", "often=3"], "'often' is not known"),
        (["--policy", "fifo", "--synthetic", "jobs=3,gap=1"], "one of --trace, --run and --synthetic"),
        (["--policy", "fifo", "--tightness", "0.5,1.5"], "add --draw-models"),
        (["--policy", "fifo", "--draw-models", "--tightness", "2,1"], "two numbers, the first not above the second"),
        (["--policy", "fifo", "--csv", "nowhere/jobs.csv"], "there is no folder"),
    ],
)
def test_what_cannot_be_asked_for_is_told_in_one_report(files: list[str], words: list[str], said: str) -> None:
    cluster = [] if "--cluster" in words else ["--cluster", "2x4"]
    code, output, error = simulate(*files, *cluster, *words)
    assert (code, output) == (2, "") and said in error
    assert error.startswith("fleet: ") and "Traceback" not in error


@pytest.mark.parametrize(
    ("trace", "rates", "said"),
    [
        (TRACE.replace("model_name,", "network,"), trace_files.RATES, "format elasticflow needs it"),
        (TRACE.replace("a,100,", "a,-100,"), trace_files.RATES, "submission_time = '-100'"),
        (TRACE.replace("bert", "birt"), trace_files.RATES, "did you mean 'bert'?"),
        (TRACE.replace(",64,1,", ",65,1,"), trace_files.RATES, "nearest: 64"),
        (TRACE.replace("64,1,100", "64,0,100"), trace_files.RATES, "num_gpu = '0': it must be a whole number"),
        (TRACE, trace_files.RATES.replace("10,18", "10,nan"), "2 = 'nan'"),
        (TRACE, trace_files.RATES.replace("10,18", "10,-3"), "2 = '-3'"),
        (TRACE, "batch,1\n64,1\n", "a table of rates has a column global_batch_size"),
        (TRACE.splitlines()[0] + "\n", trace_files.RATES, "nothing below it"),
        ("", trace_files.RATES, "the file is empty"),
        ("colour,size\nred,3\n", trace_files.RATES, "no format of traces has these columns"),
    ],
)
def test_bad_files_are_told_of_in_one_report(tmp_path: Path, trace: str, rates: str, said: str) -> None:
    written(tmp_path, rates, "rates/bert.csv")
    file = written(tmp_path, trace)
    code, output, error = simulate(
        "--trace", file, "--rates", tmp_path / "rates", "--cluster", "1x4", "--policy", "fifo"
    )
    assert (code, output) == (2, "") and said in error and "problem" in error
    assert "Traceback" not in error


def test_files_that_are_not_there_are_named(files: list[str], tmp_path: Path) -> None:
    cluster = ("--cluster", "1x4", "--policy", "fifo")
    code, _, error = simulate("--trace", tmp_path / "none.csv", *cluster)
    assert code == 2 and "none.csv: it cannot be read: No such file" in error
    code, _, error = simulate("--run", tmp_path / "none", "--policy", "fifo")
    assert code == 2 and "there is no run: journal.jsonl is missing" in error
    code, _, error = simulate(*files, "--policy", "fifo")
    assert code == 2 and "name the cluster" in error


def test_a_policy_that_cannot_be_followed_fails_alone(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise SimulationFailed("fifo, seed 0: job b is given 9 devices")

    monkeypatch.setattr("fleet.simulator.comparing.compared_policies.compare", failing)
    code, _, error = simulate(*files, "--cluster", "1x4", "--policy", "fifo")
    assert (code, error) == (1, "fleet: fifo, seed 0: job b is given 9 devices\n")


@pytest.mark.parametrize(
    ("ending", "code"),
    [pytest.param(signal.SIGINT, 75, marks=pytest.mark.slow), (signal.SIGTERM, 75), (signal.SIGKILL, -9)],
)
def test_whatever_ends_it_ends_its_processes_too(
    tmp_path: Path, ending: signal.Signals, code: int, started_cold: None
) -> None:
    written(tmp_path, trace_files.RATES, "rates/bert.csv")
    words = ["--synthetic", "jobs=30000,gap=1", "--rates", str(tmp_path / "rates"), "--cluster", "64x8"]
    command = [sys.executable, "-m", "fleet", "simulate", *words, "--policy", "fifo", "--seed", "1", "--seed", "2"]
    command += ["--processes", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        _wait_for_children(process)
        process.send_signal(ending)
        _, error = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == code
    if code == 75:
        assert error.startswith("fleet: stopped") and "Traceback" not in error
    end = time.monotonic() + 30
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < end:
            os.killpg(process.pid, 0)  # finds whoever of the group is left
            time.sleep(0.01)  # leaves the processor to them


def _wait_for_children(process: subprocess.Popen[str]) -> None:
    """Until two processes that it started have threads of their own: they are past their own start then."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    end = time.monotonic() + 60
    while sum(_threads(child) > 1 for child in children.read_text().split()) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "no process was started in a minute"
        time.sleep(0.01)  # leaves the processor to them


def _threads(pid: str) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except FileNotFoundError:  # it ended since it was listed
        return 0


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_plays_drawn_jobs(files: list[str], name: str) -> None:
    words = ("--synthetic", "jobs=30,gap=20,duration=60", *files[2:], "--cluster", "2x4", "--policy", name)
    found = told(*words, "--restart-seconds", "2")
    assert (found["policy"], found["jobs"]) == (name, 30)
    assert found["finished"] + found["dropped"] == 30 and 0 < found["utilisation"] <= 1


def test_a_published_trace_is_played() -> None:
    trace, rates = published("traces/elasticflow/195job.csv"), published("measurements/elasticflow_a100")
    found = told("--trace", trace, "--rates", rates, "--cluster", "16x8", "--policy", "fifo")
    assert (found["jobs"], found["finished"]) == (195, 195)
    assert found["deadline_ratio"] == pytest.approx(0.487, abs=0.001)


def test_nothing_that_trains_is_loaded(files: list[str]) -> None:
    words = [*files, "--cluster", "1x4", "--policy", "fifo", "--json"]
    program = (
        "import sys; from fleet.commands.cli import app\n"
        "app(['simulate', *sys.argv[1:]], standalone_mode=False)\n"
        "sys.exit('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and "avg_jct" in ended.stdout, ended.stderr


def test_costs_are_those_of_the_machine(files: list[str]) -> None:
    trace, rates = read_trace(files[1]), read_rates(files[3])
    machine = MeasuredMachine(Cluster((4,)), rates, Costs(5, 7))
    outcome = Simulation(trace, machine, policy("fifo")).run()
    found = told(*files, "--cluster", "1x4", "--policy", "fifo", "--start-seconds", "5", "--restart-seconds", "7")
    assert found["avg_jct"] == outcome.summary()["avg_jct"]
