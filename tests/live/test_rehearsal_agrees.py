"""Twenty jobs that arrive one after another: a rehearsal and a simulation tell the same of a policy.

The bar is ElasticFlow's claim for its own simulator (ASPLOS'23, 6.3): within 3 %. Both sides count by the run's own
clock: the simulation plays the rates at which the run's devices worked, and the seconds that its groups took to form.
The waits of a busy machine last longer than they should, so the run also says by how much more the two may differ.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fleet.simulator.machines.machine import Costs
from tests.journals import read_lines
from tests.live.support.arriving import DEVICES, JOBS, Arriving, draw, simulated, write_spec
from tests.live.support.processes import FLEET, run
from tests.scheduling.support.all_policies import NAMES

RESTART = MARGIN = 1.0
"""As policies know them: the defaults of `policy.restart` and `policy.margin`."""
BAR = 0.03
Event = Mapping[str, Any]

PERIOD = 6.0
"""Seconds, for policies that take devices away at the ends of periods: by default these last minutes, the run two."""
PARAMETERS: Mapping[str, Mapping[str, float]] = {
    "chronus": {"lease": PERIOD},
    "elasticflow-slot": {"slot": PERIOD},
    "gandiva": {"quantum": PERIOD},
    "gavel": {"interval": PERIOD},
    "optimus": {"interval": PERIOD},
    "pollux": {"interval": PERIOD, "delay": RESTART},
    "sia": {"interval": PERIOD},
    "themis": {"lease": PERIOD},
}


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", NAMES)
def test_rehearsed_and_simulated_times_agree(name: str, tmp_path: Path) -> None:
    jobs = draw()
    parameters = PARAMETERS.get(name, {})
    spec = write_spec(tmp_path, jobs, {"name": name, "parameters": dict(parameters)})
    out = tmp_path / "out"
    command = [*FLEET, "run", str(spec), "--out", str(out), "--rehearse", "--cluster", f"1x{DEVICES}"]
    ended = run(command, tmp_path, 600)
    ended_well = {job: record for job, record in _records(out).items() if record["status"] == "done"}
    assert ended.code == (0 if len(ended_well) == JOBS else 1), ended.output
    events: list[Event] = list(read_lines(out / "journal.jsonl"))
    done = {event["job"]: event["t"] for event in events if event["event"] == "done"}
    _check_promises(jobs, events, done)
    formed = fmean(event["seconds"] for event in events if event["event"] == "formed")
    seen = [replace(job, rates=_rates(job, events)) for job in jobs]
    costs = Costs(formed, formed, RESTART)
    told = [simulated(seen, name, costs, MARGIN, each) for each in _as_long(parameters)]
    finished = [int(outcome.finished.sum()) for outcome in told]
    assert min(finished) <= len(done) <= max(finished)
    lived = fmean(done[job.name] - job.arrival for job in jobs if job.name in done)
    bar = BAR + 2 * _lateness(jobs, events)  # a late wait delays its job, and what is decided after it
    makespans = [outcome.makespan + jobs[0].arrival for outcome in told]
    assert min(makespans) * (1 - bar) <= max(done.values()) <= max(makespans) * (1 + bar)
    times = [float(outcome.jct.mean()) for outcome in told]
    assert min(times) * (1 - bar) <= lived <= max(times) * (1 + bar)


def _as_long(parameters: Mapping[str, float]) -> list[Mapping[str, float]]:
    """These, and those of periods up to a tenth shorter or longer.

    When a period ends decides who gets devices next: the simulator itself tells up to 15 % another makespan, and
    another job more or less admitted, for a period 2 % longer. A run is among what it tells of such periods.
    """
    if not parameters:
        return [parameters]
    lengths = [PERIOD * (1 + percent / 100) for percent in range(-10, 11, 2)]
    return [{name: length if value == PERIOD else value for name, value in parameters.items()} for length in lengths]


def _check_promises(jobs: Sequence[Arriving], events: Sequence[Event], done: Mapping[str, float]) -> None:
    """What a policy promised, it kept."""
    promised = [event["job"] for event in events if event["event"] == "admitted"]
    assert all(done[job.name] <= job.arrival + job.deadline for job in jobs if job.name in promised)


def _seen(job: Arriving, events: Sequence[Event]) -> dict[int, float]:
    """Samples/s of its epochs by devices, as the run measured them."""
    rates: dict[int, list[float]] = defaultdict(list)
    for event in events:
        if event["event"] == "epoch" and event["job"] == job.name:
            rates[len(event["devices"])].append(event["rate"])
    return {count: fmean(found) for count, found in rates.items() if count in job.rates}


def _rates(job: Arriving, events: Sequence[Event]) -> dict[int, float]:
    """Its rates on the run's devices; at counts that it never had, slower by as much as at the others."""
    seen = _seen(job, events)
    pace = fmean(rate / job.rates[count] for count, rate in seen.items()) if seen else 1.0
    return {count: seen.get(count, rate * pace) for count, rate in job.rates.items()}


def _lateness(jobs: Sequence[Arriving], events: Sequence[Event]) -> float:
    """By how much, in the mean, the run's devices worked at other rates than they should have."""
    late = [abs(rate / job.rates[count] - 1) for job in jobs for count, rate in _seen(job, events).items()]
    return fmean(late)


def _records(out: Path) -> dict[str, dict[str, Any]]:
    return json.loads((out / "run.json").read_text())["jobs"]  # type: ignore[no-any-return]
