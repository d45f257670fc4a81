"""Twenty jobs that arrive one after another: a rehearsal and a simulation tell the same of a policy.

The bar is ElasticFlow's claim for its own simulator (ASPLOS'23, 6.3): within 3 %.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, median

import pytest

from fleet.run_directory.journal import read_journal
from fleet.simulator.arrivals import Costs
from tests.fleet.support.arriving import DEVICES, JOBS, draw, simulated, write_spec
from tests.run.support.processes import FLEET, run

POLICIES = ["fifo", "tiresias", "elasticflow", "malleable", "deadline"]
RESTART = MARGIN = 1.0
"""As policies know them: the defaults of `policy.restart` and `policy.margin`."""


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_rehearsed_and_simulated_times_agree(name: str, tmp_path: Path) -> None:
    jobs = draw()
    spec, out = write_spec(tmp_path, jobs), tmp_path / "out"
    command = [*FLEET, "run", str(spec), "--out", str(out), "--rehearse", "--cluster", f"1x{DEVICES}"]
    ended = run([*command, "--policy", name], tmp_path, seconds=300)
    ended_well = {job: record for job, record in _records(out).items() if record["status"] == "done"}
    assert ended.code == (0 if len(ended_well) == JOBS else 1), ended.output
    events = list(read_journal(out / "journal.jsonl"))
    formed = median(event["seconds"] for event in events if event["event"] == "formed")
    done = {event["job"]: event["t"] for event in events if event["event"] == "done"}
    outcome = simulated(jobs, name, Costs(formed, formed, RESTART), MARGIN)
    promised = [event["job"] for event in events if event["event"] == "admitted"]
    assert all(done[job.name] <= job.arrival + job.deadline for job in jobs if job.name in promised)
    assert int(outcome.finished.sum()) == len(done)
    lived = fmean(done[job.name] - job.arrival for job in jobs if job.name in done)
    assert max(done.values()) == pytest.approx(outcome.makespan + jobs[0].arrival, rel=0.03)
    assert lived == pytest.approx(float(outcome.jct.mean()), rel=0.03)


def _records(out: Path) -> dict[str, dict[str, object]]:
    return json.loads((out / "run.json").read_text())["jobs"]  # type: ignore[no-any-return]
