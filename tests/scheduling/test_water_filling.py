"""Water-filling: by hand, against brute force, and never above what anybody can do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.simulated.one_stream_bound import one_stream_bound
from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.malleable import expected_end, pour_out, water_fill
from fleet.scheduling.policies.sharing import knapsacks
from tests.scheduling.support.printed import job
from tests.scheduling.support.strategies import jobs


def samples_of(count: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(1, 1000), min_size=count, max_size=count)


def test_equal_jobs_share_alike() -> None:
    filling = water_fill([job("a", 10, 20), job("b", 10, 20)], np.array([100.0, 100.0]), 2)
    assert filling.seconds == pytest.approx(10) and filling.shares == pytest.approx([1, 1])


def test_the_longer_job_gets_more() -> None:
    # 10 m for both: 300 device-samples on 3 devices are 10 s, with two devices for the longer one.
    filling = water_fill([job("a", 10, 20, 30), job("b", 10, 20, 30)], np.array([100.0, 200.0]), 3)
    assert filling.seconds == pytest.approx(10) and filling.shares == pytest.approx([1, 2])


def test_a_share_between_two_counts_costs_what_the_further_device_costs() -> None:
    # One job alone on three devices goes at 18; on two at 16, on one at 10. It takes all three.
    filling = water_fill([job("a", 10, 16, 18)], np.array([180.0]), 3)
    assert filling.seconds == pytest.approx(10)
    # Two jobs on three devices: each 1.5 devices on average, so 13 samples/s.
    both = water_fill([job("a", 10, 16, 18), job("b", 10, 16, 18)], np.array([130.0, 130.0]), 3)
    assert both.seconds == pytest.approx(10) and both.shares == pytest.approx([1.5, 1.5])
    assert both.low.tolist() == [1, 1] and both.high.tolist() == [2, 2] and both.parts == pytest.approx([0.5, 0.5])


def test_a_job_at_its_peak_decides_alone() -> None:
    filling = water_fill([job("long", 10, 12), job("short", 10, 20)], np.array([1200.0, 10.0]), 9)
    assert filling.seconds == pytest.approx(100) and filling.full.tolist() == [True, False]
    poured = pour_out(filling, [job("long", 10, 12), job("short", 10, 20)], np.array([1200.0, 10.0]), 9)
    assert poured.shares == pytest.approx([2, 2]) and poured.seconds == filling.seconds


def test_a_curve_that_is_not_concave_is_bridged() -> None:
    # 2 devices bring nothing over one; a job that changes between 1 and 4 does better than on 2 or 3.
    counts, rates = job("a", 10, 10, 12, 40).rate.envelope(4)
    assert counts.tolist() == [1, 4] and rates.tolist() == [10, 40] or counts.tolist() == [4]


@given(st.integers(1, 12), jobs(most=1))
def test_the_envelope_is_concave_and_above_all_rates(limit: int, one: tuple[JobState, ...]) -> None:
    for member in one:
        counts, rates = member.rate.envelope(limit)
        at = np.arange(1, limit + 1)
        above = np.interp(at, [0, *counts], [0, *rates])
        assert (above >= member.rate.rates(limit) * (1 - 1e-9)).all()
        slopes = np.diff([0, *rates]) / np.diff([0, *counts])
        assert (np.diff(slopes) <= 1e-9).all()


@settings(max_examples=60, deadline=None)
@given(jobs(most=3), st.integers(1, 4), st.data())
def test_never_above_the_best_mix_of_whole_allocations(
    candidates: tuple[JobState, ...], devices: int, data: st.DataObject
) -> None:
    assume(candidates)
    samples = np.array(data.draw(samples_of(len(candidates))))
    assert water_fill(candidates, samples, devices).seconds <= _best_mix(candidates, samples, devices) * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(5, 50), st.floats(0.8, 0.99)), min_size=1, max_size=3), st.integers(1, 4), st.data()
)
def test_the_same_as_brute_force_where_rates_are_concave(
    drawn: list[tuple[float, float]], devices: int, data: st.DataObject
) -> None:
    curves = [RateCurve({m: single * m * q ** (m - 1) for m in range(1, 5)}, 4, limit=4) for single, q in drawn]
    candidates = [JobState(f"job-{i}", curve, 4) for i, curve in enumerate(curves)]
    samples = np.array(data.draw(samples_of(len(candidates))))
    filling = water_fill(candidates, samples, devices)
    poured = pour_out(filling, candidates, samples, devices)
    assert poured.full.all() or poured.shares.sum() == pytest.approx(devices)
    assert filling.seconds == pytest.approx(_best_mix(candidates, samples, devices), rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(1, 64), st.floats(0.7, 0.999), st.floats(1, 1e5), st.integers(0, 99))
def test_however_unequal_the_jobs_their_shares_are_those_that_bisection_finds(
    size: int, devices: int, q: float, longest: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    curve = RateCurve({m: 10 * m * q ** (m - 1) for m in range(1, 65)}, 4, limit=64)
    candidates = [JobState(f"job-{i}", curve, 64) for i in range(size)]
    samples = np.append(random.uniform(1, 10, size - 1), longest)
    counts, rates = curve.envelope(devices)

    def needed(seconds: float) -> float:
        wanted = samples / seconds
        return math.inf if wanted.max() > rates[-1] else np.interp(wanted, [0, *rates], [0, *counts]).sum()

    low, high = 0.0, float(samples.sum() / rates[0] + 1)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if needed(middle) > devices else (low, middle)
    assert water_fill(candidates, samples, devices).seconds == pytest.approx(high, rel=1e-6)


def _best_mix(candidates: Sequence[JobState], samples: Floats, devices: int) -> float:
    """The least time in which some allocations, each for a while, train all: brute force over the corners of the LP.

    At a corner no more allocations are used than there are jobs; unused speed is left by giving fewer devices.
    """
    rates = [np.concatenate(([0.0], member.rate.rates(min(member.limit, devices)))) for member in candidates]
    whole = [counts for counts in product(*(range(len(rate)) for rate in rates)) if 0 < sum(counts) <= devices]
    speeds = np.array([[rate[count] for rate, count in zip(rates, counts)] for counts in whole])
    picks = np.array(list(combinations(range(len(whole)), len(candidates))))
    systems = speeds[picks].transpose(0, 2, 1)
    systems = systems[np.abs(np.linalg.det(systems)) > 1e-9]
    times = np.linalg.solve(systems, np.broadcast_to(samples[:, None], (len(systems), len(samples), 1)))[..., 0]
    return float(times[(times >= -1e-9).all(axis=1)].sum(axis=1).min())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), st.data())
def test_linear_jobs_attain_the_bound(devices: int, count: int, data: st.DataObject) -> None:
    """Brute force: with linear rates the work is one heap, unless a job's limit is below its share."""
    samples = np.array(data.draw(samples_of(count)))
    members = [
        JobState(f"job-{i}", RateCurve({1: 10.0}, 4, limit=1), 1) if data.draw(st.booleans()) else _linear(i)
        for i in range(count)
    ]
    filling = water_fill(members, samples, devices)
    alone = samples / [10.0 * min(member.limit, devices) for member in members]
    assert filling.seconds == pytest.approx(max(samples.sum() / 10 / devices, alone.max()))


def _linear(index: int) -> JobState:
    curve = RateCurve({m: 10.0 * m for m in range(1, 7)}, 4, limit=6)
    return JobState(f"job-{index}", curve, 6)


@settings(max_examples=80, deadline=None)
@given(jobs(), st.integers(1, 20), st.data())
def test_shares_fill_the_machine_or_a_job_is_at_its_peak(
    candidates: tuple[JobState, ...], devices: int, data: st.DataObject
) -> None:
    assume(candidates)
    samples = np.array(data.draw(samples_of(len(candidates))))
    filling = water_fill(candidates, samples, devices)
    assert filling.shares.sum() <= devices * (1 + 1e-9)
    assert filling.full.any() or filling.shares.sum() == pytest.approx(devices)
    assert (filling.low <= filling.shares + 1e-9).all() and (filling.shares <= filling.high + 1e-9).all()
    poured = pour_out(filling, candidates, samples, devices)
    assert poured.shares.sum() <= devices * (1 + 1e-9) and (poured.shares >= filling.shares - 1e-6).all()


@settings(max_examples=40, deadline=None)
@given(jobs(most=5), st.integers(1, 8), st.data())
def test_one_stream_is_bounded_from_above_by_one_after_the_other(
    candidates: tuple[JobState, ...], devices: int, data: st.DataObject
) -> None:
    assume(candidates)
    samples = np.array(data.draw(samples_of(len(candidates))))
    bound = one_stream_bound(candidates, samples, devices, steps=20)
    fastest = np.array([member.rate.useful(min(member.limit, devices))[1][-1] for member in candidates])
    assert bound <= (samples / fastest).sum() * (1 + 1e-9)
    peaks = np.array([member.rate.rates(min(member.limit, devices)).max() for member in candidates])
    assert bound >= (samples / peaks).max() * 0.999 or len(candidates) > 1


def test_one_stream_by_hand() -> None:
    # Rates 10 and 20: together at 10 on two devices, 100 samples each in 10 s; one after the other takes 15 s.
    pair = [job("a", 10), job("b", 20)]
    assert one_stream_bound(pair, np.array([100.0, 100.0]), 2) == pytest.approx(10, rel=0.01)
    assert water_fill(pair, np.array([100.0, 100.0]), 2).seconds == pytest.approx(10)
    # 100 and 200 samples: 10 s together, and 100 samples of b alone at 20.
    assert one_stream_bound(pair, np.array([100.0, 200.0]), 2) == pytest.approx(15, rel=0.01)


def test_knapsacks_take_the_densest_first_and_the_last_in_part() -> None:
    values, parts = knapsacks(np.array([[10.0, 9.0, 1.0]]), np.array([[2, 1, 5]]), 2)
    assert values.tolist() == [14.0] and parts.tolist() == [[0.5, 1.0, 0.0]]


def test_the_expected_end_counts_those_who_wait() -> None:
    three = [job("a", 10), job("b", 10), job("c", 10)]
    assert expected_end(three, np.array([100.0, 50.0, 20.0]), np.array([1, 1, 0]), 2) == pytest.approx(8.5 + 2)
    assert expected_end(three[:2], np.array([100.0, 50.0]), np.array([1, 1]), 2) == pytest.approx(10)
