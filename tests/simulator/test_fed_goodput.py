"""`goodput` weighs what all jobs together ask of the preprocessors."""

from __future__ import annotations

import numpy as np
import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.data_path import Feed
from fleet.scheduling.policies.goodput import _Table
from fleet.simulator.machines.machine import MeasuredMachine
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import JobColumns, Trace, TraceJob
from fleet.spec.policies import policy

DEVICES, EACH, SAMPLES = 4, 6, 400


def simulated() -> SimulationOutcome:
    """Jobs that train a sample a second: as much is made for one of the costly ones, or for twenty others."""
    names = [f"{kind}-{number}" for number in range(EACH) for kind in ("costly", "plain")]
    jobs = [TraceJob(name, 0, 1, duration=SAMPLES, stream=name, epochs=4, limit=1) for name in names]
    feeds = {name: Feed(name, *((1.0, 1.0) if name.startswith("costly") else (20.0, 20.0))) for name in names}
    trace = Trace.of(JobColumns.from_jobs(jobs)).with_feeds(feeds)
    return Simulation(trace, MeasuredMachine(Cluster((DEVICES,)), None), policy("goodput")).run()


def test_jobs_that_ask_for_much_train_beside_those_that_ask_for_little(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed = simulated()
    monkeypatch.setattr(_Table, "fed", lambda table: None)
    each_alone = simulated()
    assert weighed.finished.all() and each_alone.finished.all()
    assert np.mean(weighed.end) < 0.8 * np.mean(each_alone.end)
