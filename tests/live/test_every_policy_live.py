"""Every policy drives a run, not the simulator alone: jobs that arrive, with deadlines and priorities, in rehearsal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from fleet.session.dry_run import make_plan
from fleet.spec import load
from fleet.spec.policies import defaults_of, policy_class
from tests.journals import read_lines
from tests.live.support.arriving import DEVICES, Arriving, draw, write_spec
from tests.live.support.processes import FLEET, run
from tests.scheduling.support.all_policies import NAMES

JOBS = 4


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_run_ends_with_each_job_done_or_dropped_by_its_policy(name: str, tmp_path: Path) -> None:
    spec, out = write_spec(tmp_path, draw()[:JOBS]), tmp_path / "out"
    command = [*FLEET, "run", str(spec), "--out", str(out), "--rehearse", "--cluster", f"1x{DEVICES}"]
    periods = defaults_of(policy_class(name)).keys() & {"interval", "slot", "lease"}  # minutes by default
    command += [word for period in periods for word in ("--set", f"policy.parameters.{period}=2.0")]
    ended = run([*command, "--policy", name, "--time-scale", "0.1"], tmp_path, 200)
    records = json.loads((out / "run.json").read_text())["jobs"]
    failed = {job: record["error"] for job, record in records.items() if record["status"] != "done"}
    assert ended.code == (1 if failed else 0), ended.output
    assert len(failed) < JOBS and all(f"policy {name} dropped it" in (why or "") for why in failed.values()), failed
    events = list(read_lines(out / "journal.jsonl"))
    promised = {event["job"]: event["deadline"] for event in events if event["event"] == "admitted"}
    done = {event["job"]: event["t"] for event in events if event["event"] == "done"}
    assert done.keys() == records.keys() - failed.keys()
    assert all(job in done for job in promised)


@pytest.mark.slow
def test_a_guaranteed_job_takes_devices_from_others_before_its_policy_s_next_interval(tmp_path: Path) -> None:
    rates = {1: 200.0, 2: 400.0, 4: 800.0}
    jobs = [Arriving(name, 4, 9, 0.0, 1e6, 0, rates) for name in ("a", "b")]
    jobs.append(Arriving("serving", 2, 1, 3.0, 1e6, 0, {1: 200.0, 2: 400.0}))
    spec, out = write_spec(tmp_path, jobs), tmp_path / "out"
    values = yaml.safe_load(spec.read_text())
    values["jobs"][2]["guaranteed"] = True
    values["policy"] = {"name": "easyscale", "parameters": {"interval": 20.0}}
    spec.write_text(yaml.safe_dump(values))
    ended = run([*FLEET, "run", str(spec), "--out", str(out), "--rehearse", "--cluster", f"1x{DEVICES}"], tmp_path)
    assert ended.code == 0, ended.output
    events = list(read_lines(out / "journal.jsonl"))
    begun = next(event for event in events if event["event"] == "started" and event["job"] == "serving")
    assert len(begun["devices"]) == 2 and 3.0 <= begun["t"] < 13.0
    left = [event for event in events if event["event"] == "stopped" and event["t"] <= begun["t"]]
    assert left and all(event["why"] == "policy" for event in left)


def test_quotas_hold_in_a_run_and_in_its_plan(tmp_path: Path) -> None:
    """Of three jobs of one user, two at a time may be promised; the third waits, and keeps its deadline after all."""
    jobs = [Arriving(f"job-{i}", 1, 2, 0.0, 60.0 + i, 0, {1: 200.0}) for i in range(3)]
    spec, out = write_spec(tmp_path, jobs), tmp_path / "out"
    values = yaml.safe_load(spec.read_text())
    for job in values["jobs"]:
        job["user"] = "ada"
    values["policy"] = {"name": "elasticflow", "parameters": {"slot": 2.0, "quotas": {"ada": 17.0}}}
    spec.write_text(yaml.safe_dump(values))
    plan = make_plan(load(spec), (len(jobs),))
    assert not plan.dropped and not plan.late
    begins = sorted(job.begin for job in plan.jobs)
    assert begins[1] == 0 < begins[2], "there are free devices for all"
    ended = run([*FLEET, "run", str(spec), "--out", str(out), "--rehearse", "--cluster", f"1x{len(jobs)}"], tmp_path)
    assert ended.code == 0, ended.output
    events = [event for event in read_lines(out / "journal.jsonl") if event["event"] in ("admitted", "done")]
    assert [event["event"] for event in events[:3]] == ["admitted", "admitted", "done"], events
    assert {event["job"] for event in events[3:] if event["event"] == "admitted"} == {"job-2"}
