"""No admitted job is ever late, whatever comes later; and more are admitted than by anybody else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.machine import Costs, MeasuredMachine
from fleet.simulator.machines.rate_tables import RateTable, read_rates
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import NodeFailure, Simulation
from fleet.simulator.traces import JobColumns, Trace, TraceJob, read_trace
from fleet.spec.policies import policy
from tests.simulator.support.deadline_traces import Case, cases, crowds
from tests.simulator.support.published import published


def play(case: Case, name: str, failures: tuple[NodeFailure, ...] = (), **parameters: object) -> SimulationOutcome:
    return Simulation(case.trace, case.machine, policy(name, **parameters), failures=failures).run()


def promised(outcome: SimulationOutcome) -> int:
    return int((outcome.admitted & np.isfinite(outcome.deadline)).sum())


@given(cases(), st.sampled_from([0.0, 7.0]))
@settings(max_examples=150)
def test_no_admitted_job_is_late_whatever_comes_later(case: Case, interval: float) -> None:
    outcome = play(case, "deadline", interval=interval)
    assert outcome.late_admitted == 0
    assert (outcome.finished | outcome.dropped).all() and not outcome.finished[outcome.dropped].any()
    if outcome.admitted[np.isfinite(outcome.deadline)].any():
        assert outcome.in_time.sum() >= promised(outcome)


@given(cases() | crowds())
@settings(max_examples=160)
def test_goodput_keeps_what_it_promises_beside_jobs_without_a_deadline(case: Case) -> None:
    outcome = play(case, "goodput")
    assert outcome.late_admitted == 0
    assert (outcome.finished | outcome.dropped).all() and not outcome.finished[outcome.dropped].any()


def test_a_whole_node_for_one_promise_moves_no_other() -> None:
    # Two jobs with two devices each leave no slack for a move when the third needs a node of four.
    table = RateTable({("power", 1): {count: count**0.75 for count in (1, 2, 4, 8, 16)}})
    deadlines = [None, 0.21022410381342865, 1.0511205190671433, 1.0511205190671433, None, 0.8408964152537146]
    jobs = [
        TraceJob(f"job-{index}", 0.0, 1, model="power", batch_size=1, samples=1, deadline=deadline)
        for index, deadline in enumerate(deadlines)
    ]
    machine = MeasuredMachine(Cluster((4, 4)), table, Costs(0.3, 0.3))
    outcome = play(Case(Trace.of(JobColumns.from_jobs(jobs)), machine), "goodput")
    assert promised(outcome) == 3 and outcome.late_admitted == 0
    assert not outcome.restarts[[2, 3]].any(), "they stay where they began"


@pytest.mark.parametrize("parameters", [{}, {"interval": 7.0}, {"stop_at_peak": True}])
@given(case=cases())
@settings(max_examples=40)
def test_earliest_deadline_first_keeps_the_promises_of_its_admission(parameters: dict[str, Any], case: Case) -> None:
    assert play(case, "edf-admission", **parameters).late_admitted == 0


@given(cases(most=6), st.floats(0, 40))
@settings(max_examples=40)
def test_a_node_that_fails_stops_nothing_else(case: Case, time: float) -> None:
    outcome = play(case, "deadline", failures=(NodeFailure(time, 0, until=time + 10.0),))
    assert (outcome.finished | outcome.dropped).all()


def test_a_loose_deadline_makes_room_for_a_tight_one() -> None:
    # Alone, a runs on both devices; b needs both at once for 5 s, which a can do without.
    trace = Trace.of(
        JobColumns.from_jobs(
            [TraceJob("a", 0, 1, duration=20, deadline=16), TraceJob("b", 4, 2, duration=5, deadline=9.5)]
        )
    )
    case = Case(trace, MeasuredMachine(Cluster((2,)), None))
    outcome = play(case, "deadline")
    assert outcome.admitted.all() and outcome.late_admitted == 0
    assert outcome.end[1] <= 9.5 and outcome.end[0] == pytest.approx(15)
    costly = Case(trace, MeasuredMachine(Cluster((2,)), None, Costs(restart=0.4)))
    assert play(costly, "deadline").late_admitted == 0


PUBLISHED = {
    "195job": ("a100", (8,) * 16, 0.91),
    "elasticVpollux_e": ("t4", (4,) * 16, 0.92),
    "cluster10": ("a100", (8,) * 32, 0.98),
}


def known(name: str) -> Case:
    table, nodes, _ = PUBLISHED[name]
    trace = read_trace(published(f"traces/elasticflow/{name}.csv"))
    return Case(trace, MeasuredMachine(Cluster(nodes), read_rates(published(f"measurements/elasticflow_{table}"))))


@pytest.mark.parametrize("name", PUBLISHED)
def test_deadlines_met_on_published_traces(name: str) -> None:
    case = known(name)
    outcome = play(case, "deadline")
    assert outcome.late_admitted == 0 and outcome.deadline_ratio >= PUBLISHED[name][2]
    others = {other: play(case, other).deadline_ratio for other in ("edf", "edf-admission", "chronus", "fifo")}
    assert outcome.deadline_ratio >= max(others.values()), others


def test_restarts_are_counted_on_a_published_trace() -> None:
    case = known("195job")
    machine = MeasuredMachine(
        case.machine.cluster, read_rates(published("measurements/elasticflow_a100")), Costs(30, 30)
    )
    outcome = play(Case(case.trace, machine), "deadline")
    assert outcome.late_admitted == 0 and outcome.deadline_ratio >= 0.89


def test_the_figures_of_the_authors_of_elasticflow() -> None:
    # Their program: 0.087 and 0.323 in slots of 240 s; 0.118 in slots of 60 s on the T4 trace.
    case = known("195job")
    assert play(case, "edf", interval=240).deadline_ratio == pytest.approx(0.087, abs=0.005)
    assert play(case, "edf-admission", interval=240).deadline_ratio == pytest.approx(0.323, abs=0.05)
    assert play(case, "chronus").deadline_ratio == pytest.approx(0.749 / 1.62, abs=0.05)
    assert play(known("elasticVpollux_e"), "edf", interval=60).deadline_ratio == pytest.approx(0.118, abs=0.005)
