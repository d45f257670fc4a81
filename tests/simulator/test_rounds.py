"""The rounds of simulated runs that share samples: small cases by hand, and properties."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.machine import Costs
from fleet.simulator.machines.run_machine import RunMachine, SpecRates
from fleet.simulator.outcome import PlannedRound, RoundObserver, SimulationOutcome
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import JobColumns, Trace, TraceJob
from fleet.spec.policies import policy

POLICIES = ("flotilla", "local", "homogeneous", "baseline")
SAMPLES = 100.0


class Played(NamedTuple):
    outcome: SimulationOutcome
    rounds: tuple[PlannedRound, ...]


def run(
    name: str, jobs: dict[str, tuple[float, int]], devices: tuple[int, ...], limit: int = 4, arrival: float = 0.0
) -> Played:
    """Jobs are (samples/s on one device, epochs) with 100 samples an epoch; the last arrives so late."""
    curves = {job: RateCurve({1: rate}, per_node=devices[0], workers=limit) for job, (rate, _) in jobs.items()}
    columns = JobColumns.from_jobs(
        TraceJob(
            job, arrival if index == len(jobs) - 1 else 0.0, 1, model=job, batch_size=1, samples=SAMPLES * epochs,
            limit=limit, workers=limit, epochs=epochs, stream="one/0",
        )
        for index, (job, (_, epochs)) in enumerate(jobs.items())
    )  # fmt: skip
    machine, watch = RunMachine(Cluster(devices), SpecRates(curves), Costs()), RoundObserver()
    outcome = Simulation(Trace(columns), machine, policy(name), watch=watch).run()
    return Played(outcome, watch.until(dict(zip(outcome.names, outcome.end.tolist()))))


def test_one_job_on_one_device() -> None:
    played = run("flotilla", {"a": (10.0, 3)}, (1,))
    assert played.outcome.makespan == pytest.approx(30.0)
    assert [(one.allocation, one.start, one.end) for one in played.rounds] == [({"a": (0,)}, 0.0, 30.0)]


def test_baseline_keeps_every_device_busy() -> None:
    # Four equal jobs of 10 s on two devices.
    played = run("baseline", dict.fromkeys("abcd", (10.0, 1)), (2,))
    assert played.outcome.makespan == pytest.approx(20.0)
    assert played.outcome.held.tolist() == pytest.approx([20.0, 20.0])
    assert [(one.start, one.end) for one in played.rounds] == [(0.0, 10.0), (10.0, 20.0)]


def test_homogeneous_waits_for_the_slowest_of_each_subset() -> None:
    # Shared samples: all go at the pace of the slowest, 5 samples/s.
    played = run("homogeneous", {"slow": (5.0, 1), "fast": (50.0, 1)}, (2,))
    assert played.outcome.end.tolist() == pytest.approx([20.0, 20.0])


def test_flotilla_gives_the_slow_job_more_devices() -> None:
    # 10 samples/s against 40: the slow one needs several devices to keep the pace.
    first = run("flotilla", {"slow": (10.0, 1), "fast": (40.0, 1)}, (5,)).rounds[0].allocation
    assert len(first["slow"]) == 4 and len(first["fast"]) == 1


def test_a_round_ends_when_its_last_job_does_and_none_begins_before_a_job_arrives() -> None:
    played = run("flotilla", {"a": (10.0, 1), "late": (10.0, 1)}, (2,), limit=1, arrival=25.0)
    assert [(set(one.allocation), one.start, one.end) for one in played.rounds] == [
        ({"a"}, 0.0, 10.0),
        ({"late"}, 25.0, 35.0),
    ]


def test_jobs_share_at_the_same_epoch_alone() -> None:
    # The second comes when the first is in its second epoch: it reads other samples, and neither waits for the other.
    apart = run("local", {"a": (10.0, 3), "b": (50.0, 2)}, (2,), limit=1, arrival=15.0).outcome
    assert apart.end.tolist() == pytest.approx([30.0, 19.0])


@pytest.mark.parametrize(("any_epoch", "end"), [(False, 14.0), (True, 30.0)])
def test_a_new_flotilla_shares_between_jobs_at_one_epoch_alone_unless_a_paper_says_otherwise(
    any_epoch: bool, end: float
) -> None:
    # At 10 s `short` is done and `long` is in its second epoch; `fast` begins beside it, at 50 samples/s against 10.
    jobs = {"long": (10.0, 3, 0.0), "short": (10.0, 1, 0.0), "fast": (50.0, 2, 5.0)}
    columns = JobColumns.from_jobs(
        TraceJob(
            name, arrival, 1, model=name, batch_size=1, samples=SAMPLES * epochs, limit=1, workers=1, epochs=epochs,
            stream="one/0",
        )
        for name, (_, epochs, arrival) in jobs.items()
    )  # fmt: skip
    curves = {name: RateCurve({1: rate}, 2, workers=1) for name, (rate, _, _) in jobs.items()}
    machine = RunMachine(Cluster((2,)), SpecRates(curves), Costs())
    outcome = Simulation(Trace(columns, any_epoch=any_epoch), machine, policy("flotilla", delta=1e9)).run()
    assert outcome.end.tolist() == pytest.approx([30.0, 10.0, end])


def test_no_round_is_told_of_that_ends_where_it_begins() -> None:
    # By the last bit of a float `f` is done before `e`, which gets both devices for no time at all.
    rates = {"a": (32.0, 2), "b": (33.0, 1), "c": (39.0, 3), "d": (39.0, 5), "e": (31.5, 4), "f": (31.5, 2)}
    played = run("flotilla", rates, (2,))
    assert len(played.rounds) == 5 and all(one.start < one.end for one in played.rounds)


@settings(deadline=None, max_examples=40)
@given(
    jobs=st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(st.floats(1, 100), st.integers(1, 5)), min_size=1),
    devices=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    name=st.sampled_from(POLICIES),
)
def test_every_job_is_finished_and_no_time_is_made_up(
    jobs: dict[str, tuple[float, int]], devices: list[int], name: str
) -> None:
    played = run(name, jobs, tuple(devices))
    assert {job for one in played.rounds for job in one.allocation} == set(jobs)
    assert all(one.start < one.end for one in played.rounds)
    assert all(one.end <= after.start + 1e-9 for one, after in zip(played.rounds, played.rounds[1:]))
    at_best = max(SAMPLES * epochs / (rate * 4) for rate, epochs in jobs.values())  # never more than four devices
    assert played.outcome.makespan >= at_best - 1e-6
    assert np.array_equal(run(name, jobs, tuple(devices)).outcome.end, played.outcome.end)
