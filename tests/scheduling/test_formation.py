"""Algorithm 2: worked by hand, and against the algorithm as printed."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State
from fleet.scheduling.policies.flotilla import Flotilla
from fleet.scheduling.policies.formation import closeness, form_flotilla, useful_work
from tests.scheduling.support.printed import create_flotilla, job
from tests.scheduling.support.strategies import jobs

A = job("A", 100)
B = job("B", 50, 95, 130)
C = job("C", 30, 58, 84, 108)
D = job("D", 20, 38, 54, 68, 80, 90, 98)


@pytest.mark.parametrize("literal", [True, False])
def test_the_closest_pace_joins_first(literal: bool) -> None:
    # r_fast = 100. Smallest gaps: D 2 on 7 devices, B 5 on 2, C 8 on 4. After A and D two devices are left: B.
    assert form_flotilla([A, B, C, D], 10, 20, literal) == {"A": 1, "D": 7, "B": 2}


@pytest.mark.parametrize("literal", [True, False])
def test_what_is_left_goes_to_the_slowest(literal: bool) -> None:
    # D does not fit on 3 devices; C's gap on 3 is 16, B's on 2 is 5. Then C no longer fits, and B is the slowest.
    assert form_flotilla([A, B, C, D], 4, 20, literal) == {"A": 1, "B": 3}


def test_a_job_of_another_stream_fills_a_device() -> None:
    # As before, but C slows nobody down and so is better than B's third device, which brings B from 95 to 130.
    other = job("C", 30, 58, 84, 108, stream="t")
    assert form_flotilla([A, B, other, D], 4, 20) == {"A": 1, "B": 2, "C": 1}


def test_a_job_of_other_data_has_its_own_pace() -> None:
    # C is the fastest with its data, and comes right after A.
    other = job("C", 30, 58, 84, 108, stream="t", data="t")
    assert form_flotilla([A, B, other, D], 4, 20) == {"A": 1, "C": 1, "B": 2}


def test_jobs_of_unlike_data_do_not_wait_for_each_other() -> None:
    # With one pace for all, 1000 samples/s, none of the others comes near, and three of the four devices would be
    # given to the first that is far from it.
    rates = {"tiny": 1000.0, "images": 20.0, "texts": 5.0, "sound": 1.0}
    unlike = [
        job(name, rate, 1.9 * rate, 2.7 * rate, 3.4 * rate, stream=name, data=name) for name, rate in rates.items()
    ]
    assert form_flotilla(unlike, 4, "12%") == dict.fromkeys(rates, 1)
    assert form_flotilla(unlike, 8, "12%") == dict.fromkeys(rates, 2)
    assert form_flotilla(unlike, 2, "12%") == {"tiny": 1, "images": 1}


@pytest.mark.parametrize("literal", [True, False])
def test_new_jobs_keep_the_pace_of_those_that_train_already(literal: bool) -> None:
    # By themselves r_fast is B's 50, and C's 58 on 2 devices is near. Beside A it is 100: B's 95 on 2 devices is
    # nearest, C on what is left would have 30, and B takes that, too.
    assert form_flotilla([B, C], 3, 20, literal) == {"B": 1, "C": 2}
    assert form_flotilla([B, C], 3, 20, literal, [A]) == {"B": 3}


def test_devices_are_filled_also_where_nobody_can_keep_the_pace() -> None:
    assert form_flotilla([C, D], 1, 20, others=[A]) == {"C": 1}


def test_a_filling_may_slow_the_others_down_by_a_tenth_of_their_work() -> None:
    # At the pace of the slowest, 80, the three do 80 (1/100 + 1/90 + 1/80) = 2.7 devices' work.
    # With one of 21 samples/s all would do 21 (1/100 + 1/90 + 1/80 + 1/21) = 1.7; with one of 60, 3.0.
    members = [A, job("B'", 90), job("B''", 80)]
    assert "slow" not in form_flotilla([*members, job("slow", 21)], 9, "20%")
    assert "slow" in form_flotilla([*members, job("slow", 60)], 9, "20%")


def test_a_job_that_fills_begins_on_one_device_and_the_slowest_are_raised() -> None:
    # Beside A, nobody is within 1. C joins on one device and would be raised to four: 100 (1/100 + 1/30) = 4.3 devices'
    # work. Of five devices D would leave both too slow, 38 (1/100 + 1/30 + 1/20) = 3.5. Of seven it is raised to four
    # and C to two: 58 (1/100 + 1/30 + 1/20) = 5.4.
    assert form_flotilla([A, C, D], 5, 1) == {"A": 1, "C": 4}
    assert form_flotilla([A, C, D], 7, 1) == {"A": 1, "C": 2, "D": 4}


def test_a_job_that_fills_does_not_keep_one_of_another_stream_away() -> None:
    # "slow" would leave 1.7 of the 2.7 devices' work, see above; "alone" slows nobody down.
    members = [A, job("B'", 90), job("B''", 80)]
    others = [job("slow", 21), job("alone", 20, stream="t")]
    assert form_flotilla([*members, *others], 5, "20%") == {"A": 1, "B'": 1, "B''": 1, "alone": 1}


def test_the_printed_algorithm_gives_devices_past_the_peak() -> None:
    peaked = job("P", 40, 50, 45, 40, 35)
    assert form_flotilla([peaked], 5, 20, literal=True) == {"P": 5}
    assert form_flotilla([peaked], 5, 20) == {"P": 2}


def test_devices_that_speed_nobody_up_stay_idle() -> None:
    staircase = job("S", 10, 20, 20, 40, 40)
    assert form_flotilla([staircase], 3, 20) == {"S": 2}
    assert form_flotilla([staircase], 5, 20) == {"S": 4}


def test_the_slowest_that_cannot_gain_makes_way_for_the_next() -> None:
    assert form_flotilla([job("x", 90), job("y", 95, 100, 101)], 4, "12%") == {"y": 3, "x": 1}


def test_nobody_gets_devices_that_the_data_path_cannot_feed() -> None:
    # Fed at most 60 samples/s, B and C need one device and three, and D four of its seven.
    fed = [replace(each, rate=each.rate.capped(60.0, each.limit)) for each in (A, B, C, D)]
    assert form_flotilla(fed, 40, "5%") == {"A": 1, "C": 3, "B": 2, "D": 4}
    assert sum(form_flotilla([A, B, C, D], 40, "5%").values()) > 10


def test_equal_jobs_join_in_spec_order() -> None:
    twins = [job(name, 10, 19) for name in "dacb"]
    assert list(form_flotilla(twins, 3, 0)) == ["d", "a", "c"]
    assert form_flotilla(twins, 6, 0) == {"d": 2, "a": 2, "c": 1, "b": 1}


def test_nobody_and_nothing() -> None:
    assert form_flotilla([], 4, 20) == {}
    assert form_flotilla([A], 0, 20) == {}


@settings(max_examples=400)
@given(jobs(), st.integers(1, 40), st.sampled_from([0, 5, 20.0, 1000]), st.booleans())
def test_same_as_printed(candidates: tuple[JobState, ...], devices: int, delta: float, literal: bool) -> None:
    assume(candidates)
    made = form_flotilla(candidates, devices, delta, literal)
    assert list(made.items()) == list(create_flotilla(candidates, devices, delta, literal).items())


@given(jobs(), st.integers(1, 40), st.booleans())
def test_what_every_flotilla_keeps(candidates: tuple[JobState, ...], devices: int, literal: bool) -> None:
    counts = form_flotilla(candidates, devices, "12%", literal)
    by_name = {candidate.name: candidate for candidate in candidates}
    assert sum(counts.values()) <= devices
    assert all(1 <= count <= by_name[name].limit for name, count in counts.items())
    if candidates:
        assert max(candidate.rate(1) for candidate in candidates) == by_name[next(iter(counts))].rate(1)
        data = {candidate.data for candidate in candidates}
        assert literal or {by_name[name].data for name in counts} == data or len(counts) == devices
    if not literal:
        assert all(count <= by_name[name].rate.peak(by_name[name].limit) for name, count in counts.items())
    elif counts and sum(counts.values()) < devices:
        assert all(count == by_name[name].limit for name, count in counts.items())


def test_delta_is_absolute_or_of_the_fastest() -> None:
    assert closeness(20, 200) == closeness("10%", 200) == closeness(" 10 %", 200) == 20


@pytest.mark.parametrize("delta", [-1, "-1%", "12", "much", "", None, True, float("nan"), float("inf"), "nan%"])
def test_other_deltas_are_refused(delta: object) -> None:
    with pytest.raises(ValueError, match="delta is .* must be a number of samples/s, or text such as '12%'"):
        closeness(delta, 100)  # type: ignore[arg-type]


def test_a_flotilla_that_turns_out_unlike_is_formed_anew_if_that_brings_a_tenth() -> None:
    """The pace is that of the slow one: two devices do the work of 1.2."""
    jobs = tuple(job(name, rate).changed(stream="one") for name, rate in {"fast": 100, "slow": 20, "like": 95}.items())
    held = {"fast": (0,), "slow": (1,)}
    state = State.of(Cluster((2,)), jobs, held, held, refined=frozenset({"slow"}))
    assert useful_work(jobs, {"fast": 1, "slow": 1}) == pytest.approx(1.2)
    assert Flotilla().plan(state).whole_of(held) == {}
    assert Flotilla(literal=True).plan(state).whole_of(held) == held, "as printed"
    assert Flotilla().plan(replace(state, refined=frozenset())).whole_of(held) == held, "nothing was learnt"
    assert Flotilla().plan(replace(state, refined=frozenset({"like"}))).whole_of(held) == held, "not of its members"
    two = {"fast": (0,), "like": (1,)}
    alike = State.of(Cluster((2,)), jobs, two, two, refined=frozenset({"like"}))
    assert Flotilla().plan(alike).whole_of(two) == two, "nothing is better"
