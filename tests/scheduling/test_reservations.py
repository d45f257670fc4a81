"""Reservations fit on the machine and are long enough, by hand and for whatever comes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.reservations.guarantees import Guarantees, fill_jointly
from fleet.scheduling.reservations.reservation import (
    Demand,
    FreeProfile,
    Reservation,
    SpeedLevels,
    device_seconds,
    joined,
    next_rise,
    reserved_at,
    trained,
)
from tests.scheduling.support.demands import HALF, LINEAR, demands, linear

CLOSE = 1e-4


def most_reserved(reservations: Iterable[Reservation]) -> int:
    """The most devices that are reserved at any time."""
    kept = list(reservations)
    begins = [begin for reservation in kept for begin, _, _ in reservation]
    return max((sum(reserved_at(reservation, begin) for reservation in kept) for begin in begins), default=0)


def test_the_fewest_devices_for_the_longest_time() -> None:
    profile = FreeProfile(0.0, 4)
    reservation = profile.reserve(Demand("a", 6.0, 4.0, LINEAR))
    # 6 samples in 4 s: one device all the time, and a second one for the last 2 s.
    assert reservation is not None and [count for _, _, count in reservation] == [1, 2]
    assert reservation[0][0] == 0 and reservation[1][0] == pytest.approx(2, abs=CLOSE)
    assert device_seconds(reservation) == pytest.approx(6, abs=CLOSE) and profile.least == 2


def test_room_is_found_around_others() -> None:
    profile = FreeProfile.beside(0.0, 4, [((1.0, 2.0, 4), (2.0, 3.0, 3))])
    reservation = profile.reserve(Demand("a", 6.99, 4.0, LINEAR))
    assert reservation is not None and [count for _, _, count in reservation] == [2, 3, 1, 3]
    assert profile.reserve(Demand("b", 2.1, 4.0, LINEAR)) is None
    assert profile.reserve(Demand("b", 0.9, 1.0, LINEAR)) is not None


def test_a_job_that_should_be_done_already_needs_what_rounding_takes() -> None:
    late = JobState("a", RateCurve({1: 1.0}, 4), 4, deadline=9.0, remaining=2.0, ready=1.0, pace=1.0, held=1)
    demand = Demand.of(late, SpeedLevels(late.rate, 4), 5.0)
    reservation = FreeProfile(5.0, 4).reserve(replace(demand, restart=1.0))
    assert demand.samples == 0 and reservation is not None and 0 < device_seconds(reservation) < CLOSE


def test_the_example_in_which_earliest_deadline_first_fails() -> None:
    # ElasticFlow, Figure 3: two jobs of 3 units, deadlines 3 and 3.5, two workers: one worker each, for 3.
    guarantees = Guarantees([], {}, 0.0, 2)
    assert guarantees.admit(Demand("a", 2.99, 3.0, HALF)) and guarantees.admit(Demand("b", 2.99, 3.5, HALF))
    assert most_reserved(guarantees.reservations.values()) == 2
    assert not guarantees.admit(Demand("c", 1.0, 3.0, HALF))


def test_all_at_once_fills_the_machine_to_the_last_second() -> None:
    # 7.98 of 8.01 device-seconds are needed, and one of the jobs can use but one device.
    one, two = Demand("b", 4.0, 4.01, linear(1)), Demand("a", 3.98, 4.0, LINEAR)
    found = fill_jointly([one, two], 0.0, 2)
    assert found is not None and most_reserved(found.values()) <= 2
    assert trained(found["a"], two, 0.0) >= 3.98 and trained(found["b"], one, 0.0) >= 4.0


def test_restarts_take_their_time() -> None:
    demand = Demand("a", 6.0, 10.0, LINEAR, restart=1.0, held=2, ready=0.0)
    assert trained(((0.0, 3.0, 2),), demand, 0.0) == 6.0  # it goes on
    assert trained(((0.0, 3.0, 3),), demand, 0.0) == 6.0  # it moves: 2 s on three devices
    assert trained(((1.0, 3.0, 2),), demand, 0.0) == 2.0  # it stops, and starts again
    assert trained(((0.0, 1.0, 2), (1.0, 3.0, 4)), demand, 0.0) == 2.0 + 4.0
    going_on = FreeProfile(0.0, 4).reserve(demand)
    assert going_on is not None and device_seconds(going_on) <= 6.0 + CLOSE


def test_what_nobody_else_has_reserved_can_be_held_until_the_end() -> None:
    demand = Demand("a", 8.0, 10.0, LINEAR, restart=1.0, held=2, ready=0.0)
    guarantees = Guarantees([demand], {"a": ((0.0, 8.5, 1),), "b": ((2.0, 3.0, 1),)}, 0.0, 4)
    assert guarantees.reservations["a"] != ((0.0, 8.5, 1),), "one device with a restart is not enough"
    assert guarantees.admit(Demand("b", 3.9, 4.0, LINEAR))
    assert not guarantees.hold("a", 4), "b needs one of them"
    assert guarantees.hold("a", 2) and guarantees.reservations["a"][0][2] == 2
    assert guarantees.reservations["a"][0][1] == pytest.approx(4, abs=CLOSE), "it goes on, without a restart"
    assert guarantees.hold("a", 3) and guarantees.reservations["a"][0][1] == pytest.approx(1 + 8 / 3, abs=CLOSE)


def test_a_change_that_costs_more_than_it_brings_is_left_out() -> None:
    # Two devices are free all the time, four for one second: not worth two restarts of 0.9 s.
    profile = FreeProfile.beside(0.0, 4, [((0.0, 3.0, 2), (4.0, 10.0, 2))])
    reservation = profile.reserve(Demand("a", 17.0, 10.0, LINEAR, restart=0.9))
    assert reservation is not None and {count for _, _, count in reservation} == {2}


def test_pieces_become_one() -> None:
    assert joined([(0, 1, 2), (1, 1, 5), (1, 2, 2), (2, 3, 0), (3, 4, 2)]) == ((0, 2, 2), (3, 4, 2))
    reservation = ((0.0, 2.0, 2), (3.0, 4.0, 5))
    assert [reserved_at(reservation, time) for time in (0, 2, 3.5, 4)] == [2, 0, 5, 0]
    assert next_rise(reservation, 0.0, 2) == 3.0 and next_rise(reservation, 0.0, 5) == float("inf")


@given(demands(), st.integers(1, 8))
@settings(max_examples=150)
def test_whoever_is_admitted_has_enough_and_all_fit(jobs: list[Demand], devices: int) -> None:
    guarantees = Guarantees([], {}, 0.0, devices)
    admitted = [job for job in jobs if guarantees.admit(job)]
    assert set(guarantees.reservations) == {job.name for job in admitted}
    assert most_reserved(guarantees.reservations.values()) <= devices
    for job in admitted:
        reservation = guarantees.reservations[job.name]
        assert trained(reservation, job, 0.0) >= job.samples
        assert all(0 <= begin < end <= job.deadline for begin, end, _ in reservation)
        assert all(count == job.levels.useful(count) for _, _, count in reservation)
    if admitted and jobs[0].levels.peak <= devices:
        assert jobs[0].name in guarantees.reservations, "alone it fits, and it came first"


@given(demands(most=5), st.integers(1, 8), st.floats(0.0, 5.0))
@settings(max_examples=80)
def test_reservations_that_are_followed_stay_good(jobs: list[Demand], devices: int, later: float) -> None:
    guarantees = Guarantees([], {}, 0.0, devices)
    admitted = [job for job in jobs if guarantees.admit(job)]
    assume(admitted)
    promised = guarantees.reservations
    then = [followed(job, promised[job.name], later) for job in admitted]
    again = Guarantees([job for job in then if job.samples > 0], promised, later, devices)
    for job in then:
        assert job.samples <= 0 or again.reservations[job.name] is promised[job.name]


def followed(job: Demand, reservation: Reservation, later: float) -> Demand:
    """The job at a later time, having had what was reserved."""
    before = joined((begin, min(end, later), count) for begin, end, count in reservation if begin < later)
    held = reserved_at(reservation, later)
    since = next((begin for begin, end, _ in reservation if begin <= later < end), later)
    ready = since + job.restart if held else 0.0
    return replace(job, samples=job.samples - trained(before, job, 0.0), held=held, ready=ready)


@given(demands(restarts=(0.0,)), st.integers(1, 8))
@settings(max_examples=80)
def test_all_at_once_keeps_within_the_machine(jobs: list[Demand], devices: int) -> None:
    found = fill_jointly(jobs, 0.0, devices)
    assume(found is not None)
    assert found is not None
    assert most_reserved(found.values()) <= devices
    assert all(trained(found[job.name], job, 0.0) >= job.samples for job in jobs)
