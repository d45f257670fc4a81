"""A run's ledger and a simulation's books give policies the same account of the same history."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import LiveState
from fleet.journal.events import ServiceReset
from fleet.scheduling.model import transitions
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.simulated_jobs import SimulatedBooks

CURVE = RateCurve({1: 10.0, 2: 16.0, 4: 24.0}, per_node=4)
EPOCH, STEP = 1000.0, 10


def job(**fields: object) -> JobState:
    return JobState("a", CURVE, 4, batch=STEP, remaining=20 * EPOCH, epoch=EPOCH, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Spell:
    """A time on devices, after a time without."""

    waits: int
    devices: int
    steps: int
    service_reset: bool


SPELLS = st.builds(Spell, st.integers(0, 50), st.integers(1, 4), st.integers(0, 150), st.booleans())


@given(st.lists(SPELLS, max_size=8))
def test_service_work_and_restarts_are_the_same_live_and_simulated(spells: list[Spell]) -> None:
    cluster = Cluster((4,))
    live, simulated = LiveState(cluster, [JobRecord.of(job(), "data/0")], seed=0), SimulatedBooks(cluster, 1)
    simulated.arrived(0, job())
    now, steps = 0.0, 0
    for spell in spells:
        now, devices = now + spell.waits, tuple(range(spell.devices))
        pace = CURVE(spell.devices)
        live.started("a", devices, now)
        simulated.given("a", devices, now, 0.0, pace)
        now, steps = now + spell.steps * STEP / pace, steps + spell.steps
        if spell.service_reset:
            live.take(ServiceReset(job="a", t=now))
            simulated.service_reset("a", now)
        live.stopped("a", *divmod(steps, 100), now)
        simulated.taken("a", now)
    (seen,), expected = live.for_policy(now).jobs, simulated.unfinished["a"]
    assert seen.remaining == pytest.approx(expected.remaining, abs=1e-6)
    assert seen.trained == pytest.approx(expected.trained, abs=1e-6)
    assert (seen.attained, seen.service_reset) == (expected.attained, expected.service_reset)
    assert (seen.restarts, seen.since, seen.last, seen.held) == (expected.restarts, expected.since, expected.last, 0)


def test_a_running_job_is_the_same_to_policies_live_and_simulated() -> None:
    cluster = Cluster((4,))
    live, simulated = LiveState(cluster, [JobRecord.of(job(), "data/0")], seed=0), SimulatedBooks(cluster, 1)
    simulated.arrived(0, job())
    live.started("a", (0, 1), 5.0)
    simulated.given("a", (0, 1), 5.0, 0.0, CURVE(2))
    (seen,), expected = live.for_policy(30.0).jobs, simulated.unfinished["a"]
    for of in (JobState.remaining_at, JobState.trained_at, JobState.attained_at):
        assert of(seen, 30.0) == of(expected, 30.0)
    assert (seen.pace, seen.held, seen.restarts) == (expected.pace, expected.held, expected.restarts) == (16.0, 2, 0)


def test_a_job_that_is_done_has_had_the_same_service_live_and_simulated() -> None:
    cluster = Cluster((4,))
    live, simulated = LiveState(cluster, [JobRecord.of(job(), "data/0")], seed=0), SimulatedBooks(cluster, 1)
    simulated.arrived(0, job())
    live.started("a", (0, 1), 5.0)
    simulated.given("a", (0, 1), 5.0, 0.0, CURVE(2))
    live.done("a", 12, {}, None, 30.0)  # its target was reached: fewer epochs than were expected
    simulated.done("a", 30.0)
    after = live.jobs["a"].state
    assert after.attained == simulated.service[0] == 50.0
    assert (after.remaining, after.pace, after.held, after.epochs, after.last) == (0.0, 0.0, 0, 12, (0, 1))
    assert not simulated.unfinished and live.jobs["a"].status == "done"


def test_a_job_that_is_set_back_forgets_the_losses_of_what_it_trains_again() -> None:
    before = job(epochs=3, losses=(3.0, 2.0, 1.0))
    after = transitions.reached(before, 1, 19 * EPOCH, EPOCH, 40.0)
    assert (after.epochs, after.losses, after.remaining_at(40.0)) == (1, (3.0,), 19 * EPOCH)
    assert transitions.reached(after, 1, 18 * EPOCH, 2 * EPOCH, 50.0).losses == (3.0,)


def test_a_job_whose_length_nobody_knows_counts_what_it_trains() -> None:
    endless = JobState("a", CURVE, 4)
    running = transitions.given(endless, 2, 0.0, 0.0, 16.0, again=False)
    after = transitions.taken(running, (0, 1), 10.0)
    assert (after.remaining, after.trained, after.attained) == (float("inf"), 0.0, 20.0)


def test_no_transition_changes_the_state_that_it_is_given() -> None:
    before = job(attained=7.0)
    for after in (
        transitions.promised(before),
        transitions.service_reset(before, 5.0),
        transitions.given(before, 2, 0.0, 1.0, 16.0, again=True),
        transitions.repaced(before, 10.0, 5.0, 3.0),
        transitions.rebatched(before, 40),
        transitions.evaluated(before, 0.5),
    ):
        assert after != before and before == job(attained=7.0)
