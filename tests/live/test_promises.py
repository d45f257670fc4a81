"""Deadlines that a run promised: told at once where they cannot be kept, and counted in wall time over all starts."""

from __future__ import annotations

import json
import signal
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.support.ensembles import Ensemble, RunFolder, mlp, write_ensemble
from tests.live.support.processes import FLEET, Ended, run, started

ELASTICFLOW: dict[str, Any] = {"name": "elasticflow", "parameters": {"slot": 1.0}}
PROMISING = pytest.mark.parametrize("policy", [ELASTICFLOW, {"name": "goodput"}], ids=["elasticflow", "goodput"])


def slow(deadline: Any, epochs: int = 2) -> dict[str, Any]:
    """Twenty steps of a second each, which its profile takes to be done at once."""
    return {"name": "slow", "model": {"name": "parts:Slow"}, "deadline": deadline, "stop": {"epochs": epochs}}


def ensemble(folder: Path, *jobs: dict[str, Any], policy: dict[str, Any] = ELASTICFLOW) -> Ensemble:
    return write_ensemble(folder, jobs, policy=policy)


@PROMISING
def test_a_network_that_is_slower_than_its_profile_is_told_to_be_late_before_its_deadline(
    tmp_path: Path, policy: dict[str, Any]
) -> None:
    made = ensemble(tmp_path, slow(12.0), mlp(), policy=policy)
    ended = run(made.plain("out"), tmp_path)
    assert ended.code == 0, ended.output
    folder = made.left("out")
    (admitted,), (late,), (done,) = (folder.events(kind, "slow") for kind in ("admitted", "late", "done"))
    assert admitted["deadline"] == late["deadline"] == 12.0
    assert late["t"] < 12.0 < late["end"] and late["t"] < done["t"]
    promise = folder.summary["jobs"]["slow"]["promise"]
    assert promise == {"status": "missed", "deadline": 12.0, "end": done["t"]}
    assert folder.summary["jobs"]["mlp"]["promise"] is None
    (line,) = (line for line in ended.output.splitlines() if "cannot be kept" in line)
    assert "slow" in line and "12.0 s" in line
    assert "cannot be kept" in (folder.path / "report.html").read_text()


def hours_later(folder: RunFolder, hours: float) -> None:
    """Let the sessions so far have been so long ago; lines without a checksum are as good."""
    lines = [{key: value for key, value in line.items() if key != "crc"} for line in folder.journal]
    before = [{**line, "unix": line["unix"] - 3600 * hours} for line in lines]
    (folder.path / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in before))


def test_the_time_between_two_starts_counts_against_deadlines(tmp_path: Path) -> None:
    in_an_hour = datetime.now(timezone.utc) + timedelta(hours=1)
    made = ensemble(tmp_path, slow(3600.0, epochs=1), mlp(deadline=f"{in_an_hour:%Y-%m-%dT%H:%M:%SZ}"))
    folder = made.left("out")
    with started(made.plain("out"), tmp_path) as it:
        it.wait_for(lambda: bool(folder.events("started", "slow")), "the slow network to train")
        it.interrupt(signal.SIGINT)
        assert it.finish().code == 75, it.output
    due = {event["job"]: event["due"] for event in folder.events("job")}
    assert due["slow"] == 3600.0 and 3400.0 < due["mlp"] <= 3600.0
    hours_later(folder, 2.0)
    ended = run(made.plain("out"), tmp_path)
    assert ended.code == 0, ended.output
    again = {event["job"]: event["due"] for event in folder.events("job")[2:]}
    assert -7500.0 < again["slow"] - due["slow"] < -7200.0, "two hours, and the seconds that were really between"
    assert -300.0 < again["mlp"] - due["mlp"] < 0.0, "the time of day is what it was"
    (late,) = folder.events("late", "slow")
    assert late["deadline"] == again["slow"] < 0 and late["t"] < folder.events("done", "slow")[0]["t"]
    assert folder.summary["jobs"]["slow"]["promise"]["status"] == "missed"


def add(made: Ensemble, name: str, *options: str) -> Ended:
    """`fleet add` of a perceptron that no profile knows."""
    job = {
        **mlp(name), "data": "pictures", "optimizer": {"name": "SGD", "arguments": {"lr": 0.05}}, "batch_size": 4,
        "stop": {"epochs": 1},
    }  # fmt: skip
    path = made.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job))
    return run([*FLEET, "add", str(made.folder / "out"), str(path), *options], made.folder)


@PROMISING
def test_an_added_job_is_measured_first_and_the_exit_code_says_whether_its_deadline_is_promised(
    tmp_path: Path, policy: dict[str, Any]
) -> None:
    made = ensemble(tmp_path, {**slow(None, epochs=40)}, policy=policy)
    folder = made.left("out")
    with started(made.plain("out"), tmp_path) as it:
        it.wait_for(lambda: bool(folder.events("started", "slow")), "the slow network to hold the only device")
        yes = add(made, "yes", "--deadline", "900")
        assert (yes.code, "yes: taken in, and promised the deadline" in yes.output) == (0, True), yes.output
        assert add(made, "yes", "--deadline", "900").code == 0, "the same command asks again"
        no = add(made, "no", "--deadline", "0.5")
        assert no.code == 1 and "the deadline of no is not promised" in no.output, no.output
        it.interrupt(signal.SIGINT)
        assert it.finish().code == 75
    (profile,), (rates, *_), (admitted,) = (folder.events(kind, "yes") for kind in ("profile", "rates", "admitted"))
    assert rates["source"] == "profile" and rates["measured"] == {"1": profile["rate"]}
    assert profile["t"] < admitted["t"], "it was measured before it was promised anything"
    stop = folder.events("stopped", "slow")[0]
    assert stop["why"] == "policy" and stop["t"] < profile["t"] < folder.events("started", "slow")[1]["t"]
    waits = add(made, "later", "--deadline", "2031-01-01T08:00Z")
    assert waits.code == 75 and "its next start trains them too" in waits.output and "ask again" in waits.output


def test_where_no_policy_promises_anything_the_exit_code_says_so(tmp_path: Path) -> None:
    made = write_ensemble(tmp_path, [slow(None, epochs=40)])
    folder = made.left("out")
    with started(made.plain("out"), tmp_path) as it:
        it.wait_for(lambda: bool(folder.events("started", "slow")), "the slow network to hold the only device")
        told = add(made, "free", "--deadline", "900")
    assert told.code == 1 and "policy flotilla promises it nothing; it trains as if" in told.output, told.output
