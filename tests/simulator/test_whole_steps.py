"""Jobs that end their steps before they leave: how much is left of a step, who waits for it, and what is not lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.machine import Costs, MeasuredMachine
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import USUAL, NodeFailure, Simulation, SimulationConfig
from fleet.simulator.traces import Trace
from fleet.simulator.traces.trace import JobColumns, TraceJob
from fleet.spec.policies import policy

WHOLE = SimulationConfig(whole_steps=True)
BATCH, RATE = 10, 1.0  # a step takes 10 s


def running(trained: float, remaining: float = 1000.0, epoch: float = 0.0) -> JobState:
    curve = RateCurve({1: RATE}, 1, workers=1)
    return JobState("a", curve, 1, batch=BATCH, trained=trained, remaining=remaining, epoch=epoch, pace=RATE, held=1)


@pytest.mark.parametrize(
    ("trained", "now", "remaining", "epoch", "left"),
    [
        (0, 4, 1000, 0, 6), (7, 4, 1000, 0, 9), (0, 20, 1000, 0, 0), (0, 0, 1000, 0, 0),
        (0, 23, 1000, 25, 2), (0, 29, 1000, 25, 6), (0, 25, 1000, 25, 0), (0, 4, 7, 0, 3),
    ],
)  # fmt: skip
def test_a_step_ends_where_the_epoch_has_it(
    trained: float, now: float, remaining: float, epoch: float, left: float
) -> None:
    job = running(trained, remaining, epoch)
    assert WHOLE.left_of_step(job, now) == pytest.approx(left)
    assert USUAL.left_of_step(job, now) == 0


class Handed(Policy):
    """The only device goes to `first` until `until`, and then to `second`."""

    def __init__(self, first: str, until: float, second: str) -> None:
        self.first, self.until, self.second = first, until, second

    def plan(self, state: State) -> Plan:
        order = (self.first, self.second) if state.time < self.until else (self.second, self.first)
        here = next((name for name in order if name in state.by_name), None)
        return Plan({here: (0,)} if here else {}, wake=self.until if state.time < self.until else float("inf"))


def played(
    chosen: Policy,
    works: dict[str, float],
    config: SimulationConfig,
    costs: float = 2.0,
    arrivals: Sequence[float] = (),
    failures: Sequence[NodeFailure] = (),
) -> SimulationOutcome:
    jobs = [
        TraceJob(name, arrival, 1, duration=work, work=work / BATCH, batch_size=BATCH, samples=work)
        for (name, work), arrival in zip(works.items(), arrivals or [0.0] * len(works))
    ]
    trace = Trace.of(JobColumns.from_jobs(jobs)).with_curves(
        {name: RateCurve({1: RATE}, 1, workers=1) for name in works}
    )
    machine = MeasuredMachine(Cluster((1,)), None, Costs(costs, costs))
    return Simulation(trace, machine, chosen, failures, config).run()


def test_who_comes_waits_until_who_leaves_has_ended_its_step() -> None:
    # a begins at 2 s and ends its second step at 22 s; b begins 2 s later, ends at 54 s; a has 20 samples left then.
    works = {"a": 40.0, "b": 30.0}
    whole = played(Handed("a", 15.0, "b"), works, WHOLE)
    assert whole.end.tolist() == pytest.approx([76, 54])
    usual = played(Handed("a", 15.0, "b"), works, USUAL)
    assert usual.end.tolist() == pytest.approx([76, 47])


def test_a_job_whose_last_step_it_is_ends_and_is_not_begun_again() -> None:
    outcome = played(Handed("a", 15.0, "b"), {"a": 18.0, "b": 30.0}, WHOLE)
    assert outcome.end.tolist() == pytest.approx([20, 52]) and outcome.restarts.tolist() == [0, 0]


def test_a_node_that_fails_ends_no_step() -> None:
    failed = played(policy("fifo"), {"a": 20.0}, WHOLE, costs=0.0, failures=[NodeFailure(15.0, 0, 100.0)])
    assert failed.end.tolist() == pytest.approx([105]), "it trained 15 samples, and 5 are left"


@pytest.mark.parametrize("name", ["tiresias", "elasticflow", "flotilla", "malleable", "gandiva"])
@given(
    works=st.lists(st.floats(5, 200), min_size=1, max_size=5), gaps=st.lists(st.floats(0, 60), min_size=4, max_size=4)
)
def test_one_device_is_busy_as_long_with_whole_steps(name: str, works: list[float], gaps: list[float]) -> None:
    arrivals, until = list(accumulate([0.0, *gaps[: len(works) - 1]])), 0.0
    for arrival, work in zip(arrivals, works):
        until = max(until, arrival) + work / RATE
    named = {f"j{index}": work for index, work in enumerate(works)}
    for config in (USUAL, WHOLE):
        outcome = played(policy(name), named, config, costs=0.0, arrivals=arrivals)
        assert outcome.finished.all() and outcome.end.max() == pytest.approx(until)
