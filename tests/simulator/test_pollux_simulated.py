"""Pollux' measurements as a machine, and its policy on the authors' workload."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.pollux_machine import (
    Application,
    Epochs,
    PolluxMachine,
    PolluxRates,
    PolluxScaling,
    StepTimes,
    read_pollux_rates,
)
from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.machine import Costs, StagedMachine
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import JobColumns, Trace, TraceJob, read_trace
from fleet.spec.policies import policy
from tests.simulator.support.published import published


def epochs(iteration: list[float], sqr: list[float], var: list[float]) -> Epochs:
    progress = np.array([10.0, 30.0])
    return Epochs(progress, np.array(iteration), np.zeros(2), np.array(sqr), np.array(var))


def steps(*seconds: float) -> StepTimes:
    """Of 4, 8 and 16 samples."""
    return StepTimes(np.array([4.0, 8.0, 16.0]), np.array(seconds), np.array([0.0, 0.0, 0.0]))


NOISE = {8: epochs([10, 30], [1, 1], [1, 3]), 16: epochs([8, 22], [1, 1], [1, 3])}
TIMES = {(1,): steps(0.5, 1.0, 2.0), (2,): steps(0.5, 1.0, 2.0), (1, 1): steps(1.0, 2.0, 4.0)}
RATES = PolluxRates({"net": Application(TIMES, {}, NOISE)}, per_node=2)
MACHINE = PolluxMachine(Cluster((2, 2)), RATES)


def of(*jobs: TraceJob) -> Trace:
    return Trace.of(JobColumns.from_jobs(jobs))


def test_the_pace_is_goodput_and_changes_with_the_epoch() -> None:
    # 10 + 20 steps of 8 samples, 1 s each. Twice the batch takes 2 s for a gain of 2 / 1.5, then of 4 / 2.5.
    assert isinstance(MACHINE, StagedMachine)
    for batch, seconds in ((8, 10 + 20), (16, 10 * 2 * 1.5 / 2 + 20 * 2 * 2.5 / 4)):
        outcome = Simulation(of(TraceJob("a", 0, 1, "net", batch)), MACHINE, policy("fifo")).run()
        assert outcome.end.tolist() == [pytest.approx(seconds)]


def test_the_pace_depends_on_the_placement() -> None:
    job = MACHINE.arriving(TraceJob("a", 0, 2, "net", 16))
    together, apart = MACHINE.pace(job, (0, 1)), MACHINE.pace(job, (1, 2))
    assert together == pytest.approx(8 * (2 / 1.5) / 1.0) and apart == pytest.approx(together / 2)


def test_a_stop_in_the_second_epoch_loses_nothing() -> None:
    job = MACHINE.arriving(TraceJob("a", 0, 1, "net", 8))
    assert MACHINE.lasts(job) == 80 and job.remaining == 240
    second = MACHINE.advanced(job.changed(remaining=160.0))
    assert second.epochs == 1 and MACHINE.lasts(second) == float("inf")
    assert MACHINE.begun(second, (0, 1)).scaling == PolluxScaling(second.scaling.agent, 1, 8, 2)  # type: ignore[union-attr]


def test_a_trace_that_says_how_many_steps_has_its_share() -> None:
    whole = RATES.application("net").work(8)
    job = MACHINE.arriving(TraceJob("a", 0, 1, "net", 8, work=whole / 2))
    assert job.remaining == pytest.approx(120)


def test_the_batch_size_follows_the_noise() -> None:
    # 1.1 s for 8 samples, 1.3 s for 16, of which the gain is 1.01 / 1.005 without much noise, and 4 / 2.5 with it.
    noise = {8: epochs([10, 30], [1, 1], [0.01, 3]), 16: epochs([8, 22], [1, 1], [0.01, 3])}
    machine = PolluxMachine(Cluster((2,)), PolluxRates({"net": Application({(1,): steps(1.0, 1.1, 1.3)}, {}, noise)}))
    first = machine.arriving(TraceJob("a", 0, 1, "net", 8))
    tuned = [job.scaling.tuned(1, 1) for job in (first, machine.advanced(first))]  # type: ignore[union-attr]
    assert [found.batch for found in tuned] == [8, 16]
    assert [found.rate for found in tuned] == [pytest.approx(8 / 1.1), pytest.approx(8 * 1.6 / 1.3)]


def test_the_mean_completion_time_of_the_authors_workload() -> None:
    trace = read_trace(published("traces/pollux/workload-6.csv"))
    rates = read_pollux_rates(published("measurements/pollux_osdi21"))
    machine = PolluxMachine(Cluster((4,) * 16), rates, Costs(30.0, 30.0))
    means = {}
    for name, parameters in (("pollux", {}), ("tiresias", {"thresholds": (57_600.0,)}), ("optimus", {})):
        outcome = Simulation(trace, machine, policy(name, **parameters)).run()
        assert outcome.finished.all()
        means[name] = outcome.summary()["avg_jct"]
    assert means["pollux"] == pytest.approx(2446, rel=0.1)
    assert means["tiresias"] == pytest.approx(3470, rel=0.1)
    assert means["optimus"] == pytest.approx(5302, rel=0.1)
