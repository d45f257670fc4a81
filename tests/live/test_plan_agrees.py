"""A spec with arrivals, deadlines and priorities: its plan tells what `fleet simulate` of the same jobs tells."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from fleet.scheduling.model.cluster import Cluster
from fleet.session.dry_run import DryRun, make_plan
from fleet.simulator.comparing.compared_policies import Comparison, play_case
from fleet.simulator.comparing.settings import cases_of
from fleet.simulator.comparing.workload import Workload
from fleet.simulator.machines.machine import Costs
from fleet.simulator.outcome import SimulationOutcome
from fleet.spec import load
from tests.live.support.arriving import BATCH, DEVICES, SAMPLES, Arriving, draw, write_spec

JOBS = 12
RING = 100_000
"""Samples of the ring: so many that nobody waits for another one's reader."""
POLICIES = (
    "fifo",
    "tiresias",
    "deadline",
    "elasticflow",
    "malleable",
    "edf-admission",
    "goodput",
    "flotilla",
    "sharing",
)


def planned(folder: Path, jobs: list[Arriving], name: str, **policy: float) -> DryRun:
    path = write_spec(folder, jobs)
    values = yaml.safe_load(path.read_text())
    values["policy"] = {"name": name, "margin": 0.0, **policy}
    values["resources"] = {"ring_samples": RING}
    path.write_text(yaml.safe_dump(values))
    return make_plan(load(path), (DEVICES,))


def simulated(folder: Path, jobs: list[Arriving], name: str) -> SimulationOutcome:
    """The same jobs as a native trace, with a table of their rates."""
    header = "name,arrival,devices,model,batch_size,samples,limit,workers,epochs,deadline,priority,stream"
    rows = [
        f"{job.name},{job.arrival!r},{job.workers},{job.name},{BATCH * job.workers},{job.epochs * SAMPLES},"
        f"{job.workers},{job.workers},{job.epochs},{job.arrival + job.deadline!r},{job.priority},points/0"
        for job in jobs
    ]
    trace, rates = folder / "trace.csv", folder / "rates"
    trace.write_text("\n".join([header, *rows]) + "\n")
    rates.mkdir()
    for job in jobs:
        batch = BATCH * job.workers
        columns = ",".join(map(str, job.rates)), ",".join(repr(rate / batch) for rate in job.rates.values())
        (rates / f"{job.name}.csv").write_text(f"global_batch_size,{columns[0]}\n{batch},{columns[1]}\n")
    costs = Costs(1.0, 1.0)
    comparison = Comparison(
        Workload(trace, rates=rates), Cluster((DEVICES,)), cases_of([name], [], [0]), costs, slack=RING
    )
    return play_case(comparison, comparison.cases[0])


def whole(seed: int) -> list[Arriving]:
    """Jobs of one and two virtual workers, the first of which comes at 0: as a trace's times count from its first."""
    jobs = [job for job in draw(seed) if job.workers <= 2][:JOBS]
    first = jobs[0].arrival
    return [Arriving(**{**vars(job), "arrival": round(job.arrival - first, 3)}) for job in jobs]


@pytest.mark.parametrize("name", POLICIES)
def test_a_plan_tells_what_simulate_tells(name: str, tmp_path: Path) -> None:
    jobs = whole(seed=2)
    plan, outcome = planned(tmp_path, jobs, name), simulated(tmp_path, jobs, name)
    ends, begins = dict(zip(outcome.names, outcome.end)), dict(zip(outcome.names, outcome.begin))
    for job in plan.jobs:
        assert job.begin == pytest.approx(begins[job.name], nan_ok=True)
        assert job.end == pytest.approx(ends[job.name], nan_ok=True)
        assert job.deadline == pytest.approx(job.spec.arrival + float(job.spec.deadline or math.inf))
    assert plan.seconds == pytest.approx(outcome.makespan)
    assert set(plan.dropped) == {name for name, gone in zip(outcome.names, outcome.dropped) if gone}
    late = np.isfinite(outcome.end) & ~outcome.in_time
    assert {job.name for job in plan.late} == {name for name, is_late in zip(outcome.names, late) if is_late}
    _check_rounds(plan)


def _check_rounds(plan: DryRun) -> None:
    jobs = {job.name: job for job in plan.jobs}
    for one in plan.rounds:
        assert one.start < one.end
        assert all(one.start >= jobs[name].spec.arrival for name in one.allocation)
        assert all(one.start < jobs[name].end for name in one.allocation)
    served = {name for one in plan.rounds for name in one.allocation}
    assert served == {job.name for job in plan.jobs if not math.isnan(job.begin)}


def test_the_first_arrival_of_a_spec_counts_from_the_begin_of_the_run(tmp_path: Path) -> None:
    jobs = [Arriving("a", 1, 1, 30.0, 100.0, 0, {1: 48.0})]
    plan = planned(tmp_path, jobs, "fifo", restart=2.0)
    assert [(one.start, one.end) for one in plan.rounds] == [(30.0, 42.0)]
    assert (plan.jobs[0].deadline, plan.seconds, plan.late) == (130.0, 42.0, ())


def test_a_guaranteed_job_takes_devices_at_once(tmp_path: Path) -> None:
    rates = {1: 48.0, 2: 96.0, 4: 192.0}
    jobs = [Arriving("long", 4, 10, 0.0, 1e6, 0, rates), Arriving("serving", 4, 1, 5.0, 1e6, 0, rates)]
    path = write_spec(tmp_path, jobs)
    begins = {}
    for guaranteed in (False, True):
        values = yaml.safe_load(path.read_text())
        values["jobs"][1]["guaranteed"] = guaranteed
        values["policy"] = {"name": "easyscale", "parameters": {"interval": 20.0}}
        path.write_text(yaml.safe_dump(values))
        begins[guaranteed] = make_plan(load(path), (DEVICES,)).jobs[1].begin
    assert begins[True] == 5.0 < begins[False]


def test_a_policy_chooses_batches_in_a_plan_as_in_a_run(tmp_path: Path) -> None:
    path = write_spec(tmp_path, [Arriving("a", 2, 2, 0.0, 1e6, 0, {1: 48.0, 2: 60.0})])
    values = yaml.safe_load(path.read_text())
    values["policy"] = {"name": "throughput", "restart": 0.0}
    path.write_text(yaml.safe_dump(values))
    fixed = make_plan(load(path), (2,)).seconds
    assert fixed == pytest.approx(2 * SAMPLES / 60)
    values["jobs"][0]["batch_range"] = [10, 100]
    path.write_text(yaml.safe_dump(values))
    # A step of 10 takes 10 / 60 s, of which each device computes 10 / 48 / 2 s; with 100 samples the rest stays.
    summing = 10 / 60 - 10 / 48 / 2
    assert make_plan(load(path), (2,)).seconds == pytest.approx(2 * SAMPLES / 100 * (100 / 48 / 2 + summing))


def test_a_batch_changes_in_a_plan_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    """Alone on two devices it has 100 samples a step; with another beside it, on one, all batches are as fast."""
    rates = {1: 48.0, 2: 60.0}
    path = write_spec(tmp_path, [Arriving("a", 2, 4, 0.0, 1e6, 0, rates), Arriving("b", 1, 1, 2.0, 1e6, 0, {1: 48.0})])
    values = yaml.safe_load(path.read_text())
    values["policy"] = {"name": "throughput", "restart": 0.0}
    values["jobs"][0]["batch"] = {"range": [10, 100], "learning_rate": "keep"}
    values["rehearse"]["batches"] = {"a": {10: 48.0, 100: 40.0}}
    path.write_text(yaml.safe_dump(values))
    first, second = (job for job in make_plan(load(path), (2,)).jobs)
    summing = 10 / 60 - 10 / 48 / 2
    large, alone = 100 / (100 / 40 / 2 + summing), 40.0  # samples/s on two devices, and on one in the same epoch
    trained = 2 * large  # before b comes
    left_of_epoch = SAMPLES - trained % SAMPLES
    assert second.begin == 2.0 and second.end == pytest.approx(2.0 + SAMPLES / 48)
    assert left_of_epoch / alone < SAMPLES / 48, "the epoch ends while b trains"
    small = SAMPLES / 48 - left_of_epoch / alone  # seconds with ten samples a step, at 48/s
    done = trained + left_of_epoch + small * 48
    rest = SAMPLES - done % SAMPLES  # of the epoch in which b ends, on two devices with ten samples a step
    end = second.end + rest / 60 + (4 * SAMPLES - done - rest) / large
    assert first.end == pytest.approx(end)


def test_deadlines_that_are_times_of_day_are_told_in_seconds_after_the_start(tmp_path: Path) -> None:
    jobs = [Arriving(name, 1, 1, 0.0, 1.0, 0, {1: 48.0}) for name in ("before", "after", "seconds")]
    path = write_spec(tmp_path, jobs)
    values = yaml.safe_load(path.read_text())
    for job, deadline in zip(values["jobs"], ("2026-12-01T07:00Z", "2026-12-01T09:00+01:00", 500.0)):
        job["deadline"] = deadline
    path.write_text(yaml.safe_dump(values))
    told = json.loads(_fleet("plan", str(path), "--cluster", "1", "--start", "2026-12-01T07:30Z", "--json"))
    assert {name: job["deadline"] for name, job in told["jobs"].items()} == {"before": 0, "after": 1800, "seconds": 500}
    assert told["missed_deadlines"] == ["before"]
    now = make_plan(load(path), (1,), start=1_796_112_000.0 - 60.0).jobs[1]  # a minute before
    assert now.deadline == 60.0


def test_the_command_tells_what_is_late_and_dropped_and_the_bound(tmp_path: Path) -> None:
    jobs = [Arriving("a", 1, 2, 0.0, 1.0, 0, {1: 48.0}), Arriving("b", 1, 2, 7.0, 1e6, 0, {1: 48.0})]
    spec = write_spec(tmp_path, jobs)
    told = json.loads(_fleet("plan", str(spec), "--cluster", "1", "--policy", "malleable", "--json"))
    assert told["missed_deadlines"] == ["a"] and told["dropped"] == {}
    assert told["jobs"]["b"]["arrival"] == 7.0 and told["jobs"]["b"]["begin"] >= 7.0
    assert told["bound_seconds"] <= told["predicted_seconds"]
    assert told["gap"] == pytest.approx(told["end_seconds"] / told["bound_seconds"] - 1)
    table = _fleet("plan", str(spec), "--cluster", "1", "--policy", "edf-admission")
    assert "dropped: a" in table and "deadline s" in table and "no schedule ends before" not in table


def _fleet(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "fleet", *arguments], capture_output=True, text=True, timeout=300, check=True
    ).stdout
