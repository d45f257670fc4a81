"""Jobs whose batch a policy chooses, at rates of a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fleet.commands.cli import app
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.policy import Plan, State
from fleet.scheduling.policies.wrappers import WrappedPolicy
from fleet.simulator.machines.machine import Costs, MeasuredMachine
from fleet.simulator.machines.rate_tables import BatchRangeMachine, BatchRates, RateTable
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces.trace import JobColumns, Trace
from fleet.spec.policies import policy

COUNTS = (1, 2, 4, 8)
TABLE = RateTable(
    {("net", batch): {k: 1 / (0.1 + batch / 256 / k + 0.05 * k) for k in COUNTS} for batch in (64, 128, 512)}
)
"""Steps/s: a part that no batch changes, one for each sample, and one for each device."""


class Watched(WrappedPolicy):
    """The policy `throughput`, and the batches that it gave."""

    def __init__(self, **parameters: object) -> None:
        super().__init__(policy("throughput", **parameters))
        self.batches: list[int] = []

    def plan(self, state: State) -> Plan:
        plan = self._policy.plan(state)
        self.batches += plan.batches.values()
        return plan


def trace(jobs: int = 12) -> Trace:
    batches = np.resize([64.0, 128.0, 512.0], jobs)
    samples = np.linspace(50_000, 200_000, jobs)
    columns = JobColumns.of(
        name=[f"job-{i}" for i in range(jobs)],
        arrival=np.arange(jobs) * 40.0,
        devices=np.ones(jobs),
        model=["net"] * jobs,
        batch_size=batches,
        samples=samples,
        work=samples / batches,
    )
    return Trace.of(columns)


def played(chosen: Watched, ranges: bool = True) -> SimulationOutcome:
    cluster = Cluster((4, 4))
    machine = BatchRangeMachine(cluster, BatchRates(TABLE), Costs()) if ranges else MeasuredMachine(cluster, TABLE)
    return Simulation(trace(), machine, chosen).run()


@given(st.sampled_from(COUNTS), st.integers(64, 512))
def test_a_step_takes_what_lies_between_the_measured_batches(devices: int, batch: int) -> None:
    surface = BatchRates(TABLE).scaling("net", 8)
    rate = surface.rate(devices, batch)
    seconds = {b: 1 / TABLE.measured("net", b)[devices] for b in (64, 128, 512)}
    lower, upper = (64, 128) if batch <= 128 else (128, 512)
    part = (batch - lower) / (upper - lower)
    assert batch / rate == pytest.approx(seconds[lower] + part * (seconds[upper] - seconds[lower]))
    assert surface.rate(devices, 63) == surface.rate(devices, 513) == 0.0


def test_the_policy_chooses_batches_in_the_range_and_gets_more_done() -> None:
    free, own = Watched(), Watched(batch="fixed")
    ranging, fixed = played(free), played(own)
    assert ranging.finished.all() and fixed.finished.all()
    assert free.batches and all(64 <= batch <= 512 for batch in free.batches) and not own.batches
    assert ranging.jct.mean() < fixed.jct.mean()


def test_whoever_leaves_batches_alone_gets_the_same_with_ranges() -> None:
    with_ranges, without = played(Watched(batch="fixed")), played(Watched(batch="fixed"), ranges=False)
    assert with_ranges.end == pytest.approx(without.end)


def test_other_policies_get_the_same_with_ranges() -> None:
    cluster, results = Cluster((4, 4)), []
    for machine in (BatchRangeMachine(cluster, BatchRates(TABLE), Costs()), MeasuredMachine(cluster, TABLE)):
        results.append(Simulation(trace(), machine, policy("optimus")).run())
    assert results[0].end == pytest.approx(results[1].end)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "rates").mkdir()
    (tmp_path / "rates" / "net.csv").write_text("global_batch_size,1,2\n8,1.0,1.9\n16,0.6,1.1\n")
    (tmp_path / "jobs.csv").write_text("name,arrival,devices,model,batch_size,work\na,0,1,net,8,100\nb,5,1,net,16,90\n")
    return str(tmp_path / "jobs.csv"), str(tmp_path / "rates")


def test_ranges_on_the_command_line(files: tuple[str, str]) -> None:
    jobs, rates = files
    common = ["simulate", "--trace", jobs, "--cluster", "1x2", "--policy", "throughput"]
    done = CliRunner().invoke(app, [*common, "--rates", rates, "--batch-ranges", "--json"])
    assert done.exit_code == 0 and '"finished": 2' in done.output
    bad = CliRunner().invoke(app, [*common, "--batch-ranges"])
    assert bad.exit_code == 2 and "name its folder with --rates" in bad.output


def test_ranges_need_rates_by_batch(files: tuple[str, str], tmp_path: Path) -> None:
    jobs, _ = files
    by_kind = tmp_path / "minibatch_seconds_by_gpu.csv"
    by_kind.write_text("model,bs,gpu,ddp_nondeterminism,ddp_determinism,ddp_hetero\nnet,8,v100,0.5,0.5,0.6\n")
    done = CliRunner().invoke(
        app,
        [
            "simulate",
            "--trace",
            jobs,
            "--rates",
            str(by_kind),
            "--batch-ranges",
            "--cluster",
            "1x2",
            "--policy",
            "fifo",
        ],
    )
    assert done.exit_code == 2 and "--batch-ranges needs rates by model and batch size" in done.output
