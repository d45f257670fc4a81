"""Rate curves: measured points, what lies between and beyond, what is learnt."""

import math
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.rates import RateCurve, expected_efficiency
from tests.scheduling.support.strategies import curves


def test_equation_5_by_hand() -> None:
    # GPUsPerNode = 4, so M_b = 8: q = 384 / 350 * 7 / 8 = 0.96, and r(10) = 10 * 384 / 8 * 0.96^2.
    curve = RateCurve({1: 60, 7: 350, 8: 384}, per_node=4)
    assert curve(8) == 384
    assert curve(9) == pytest.approx(9 * 48 * 0.96)
    assert curve(10) == pytest.approx(442.368)


def test_equation_5_goes_on_from_the_last_measurement() -> None:
    # q as before, but 12 devices were measured too: r(13) = 13 * 540 / 12 * 0.96.
    assert RateCurve({1: 60, 7: 350, 8: 384, 12: 540}, per_node=4)(13) == pytest.approx(561.6)


def test_the_last_two_stand_in_where_two_nodes_were_not_measured() -> None:
    # Efficiencies 10 and 8.1 of 2 and 4 devices: q^2 = 0.81.
    assert RateCurve({1: 11, 2: 20, 4: 32.4}, per_node=4)(6) == pytest.approx(6 * 8.1 * 0.81)


def test_a_single_measurement_scales_by_the_default_efficiency() -> None:
    assert RateCurve({1: 100}, per_node=4)(3) == pytest.approx(300 * 0.97**2)
    assert RateCurve({2: 194}, per_node=4)(1) == pytest.approx(100)


def test_between_measurements_lies_the_straight_line() -> None:
    assert RateCurve({1: 10, 3: 26, 7: 50}, per_node=4).rates(7).tolist() == [10, 18, 26, 32, 38, 44, 50]


def test_superlinear_noise_is_not_extrapolated() -> None:
    assert RateCurve({7: 70, 8: 90}, per_node=4)(64) == pytest.approx(64 * 90 / 8)


def test_nothing_grows_past_the_limit() -> None:
    curve = RateCurve({1: 10}, per_node=4, limit=3)
    assert curve(9) == curve(3) > curve(2)
    assert curve.peak(9) == 3


def test_virtual_workers_make_a_staircase() -> None:
    # 8 workers of 10 samples/s each and no other cost: 8, 4, 2 and 1 turns measured, 3 turns on 3 devices are not.
    curve = RateCurve({1: 10, 2: 20, 4: 40}, per_node=2, workers=8)
    assert curve.rates(8).tolist() == pytest.approx([10, 20, 80 / 3, 40, 40, 40, 40, 80])
    assert curve.useful(8)[0].tolist() == [1, 2, 3, 4, 8]


@pytest.mark.parametrize("per_node", [4, 3])
def test_equation_5_does_not_take_a_stair_for_a_trend(per_node: int) -> None:
    # M_b - 1 = 7 and M_b = 8 lie on both sides of a stair of 16 workers; M_b - 1 = 5 and M_b = 6 too.
    perfect = {m: 160 / math.ceil(16 / m) for m in range(1, 2 * per_node + 1)}
    assert RateCurve(perfect, per_node, workers=16)(16) == pytest.approx(160)


def test_the_peak_is_the_first_of_a_plateau() -> None:
    curve = RateCurve({1: 10, 2: 18, 3: 18, 4: 17, 5: 19, 6: 19}, per_node=4, limit=6)
    assert curve.useful(6)[0].tolist() == [1, 2, 5]
    assert (curve.peak(6), curve.peak(4), curve.peak(1)) == (5, 2, 1)


def test_observed_rates_refine_the_curve() -> None:
    curve = RateCurve({1: 10, 2: 20}, per_node=4)
    assert curve.observe(2, 16)(2) == 18
    assert curve.observe(4, 32)(4) == 32
    assert curve(2) == 20


@given(st.integers(1, 12).flatmap(curves), st.integers(1, 20))
def test_observing_what_was_expected_changes_nothing_there(curve: RateCurve, count: int) -> None:
    count = min(count, curve.limit or count)
    assert curve.observe(count, curve(count))(count) == pytest.approx(curve(count))


@given(st.integers(1, 12).flatmap(curves), st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_rates_are_the_same_in_whatever_portions_they_are_asked_for(curve: RateCurve, limits: list[int]) -> None:
    whole = RateCurve(curve.measured, curve.per_node, curve.limit, curve.workers).rates(40)
    for limit in limits:
        np.testing.assert_array_equal(curve.rates(limit), whole[:limit])
        assert np.isfinite(whole).all() and (whole > 0).all()


@given(st.integers(1, 12).flatmap(curves), st.integers(1, 20))
def test_useful_counts_rise_up_to_the_peak(curve: RateCurve, limit: int) -> None:
    counts, rates = curve.useful(limit)
    assert counts[0] == 1 and counts[-1] == curve.peak(limit) <= limit
    assert (np.diff(counts) > 0).all() and (np.diff(rates) > 0).all()
    assert rates.tolist() == [curve(int(count)) for count in counts]


@given(st.integers(1, 12).flatmap(curves), st.integers(1, 20), st.floats(0.5, 400))
def test_a_capped_curve_is_cut_off_and_its_useful_counts_end_there(curve: RateCurve, limit: int, most: float) -> None:
    capped = curve.capped(most, limit)
    assert np.array_equal(capped.rates(limit), np.minimum(curve.rates(limit), most))
    counts, rates = curve.useful(limit)
    kept, reached = capped.useful(limit)
    needed = int(np.searchsorted(rates, most)) + 1  # the first count that reaches it, or all
    assert np.array_equal(kept, counts[:needed]) and np.array_equal(reached, np.minimum(rates[:needed], most))
    assert curve.capped(most, limit) is capped, "policies see the same curve each time"
    assert (capped is curve) == bool(curve.rates(limit).max() <= most)


def test_what_is_learnt_of_a_capped_curve_stays_capped() -> None:
    curve = RateCurve({1: 10.0}, per_node=4, limit=8).capped(25.0, 8)
    assert curve.observe(1, 40.0)(1) == curve.scaled(9.0)(1) == 25.0
    with pytest.raises(ValueError, match=r"most is 0.0 samples/s; it must be above 0"):
        RateCurve({1: 1.0}, 1, most=0.0)


def test_tables_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        RateCurve({1: 10}, per_node=4).rates(3)[0] = 1


@pytest.mark.parametrize(
    ("measured", "more", "message"),
    [
        ({}, {}, "at least one measurement"),
        ({1: 0.0}, {}, "rate on 1 devices is 0.0"),
        ({1: math.nan}, {}, "must be above 0 and finite"),
        ({0: 3.0}, {}, "measured on 0 devices"),
        ({1: 3.0}, {"limit": 0}, "limit is 0"),
        ({1: 3.0}, {"workers": 0}, "workers is 0"),
    ],
)
def test_impossible_curves_are_refused(measured: dict[int, float], more: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RateCurve(measured, per_node=4, **more)
    with pytest.raises(ValueError, match="above 0"):
        RateCurve({1: 3.0}, per_node=4).observe(2, -1.0)
    with pytest.raises(ValueError, match="asked for 0 devices"):
        RateCurve({1: 3.0}, per_node=4)(0)


def test_a_curve_with_one_count_keeps_what_is_expected_of_each_further_device() -> None:
    curve = RateCurve({2: 100.0}, per_node=4, expected=0.8)
    assert curve(3) == pytest.approx(150.0 * 0.8) and curve(1) == pytest.approx(50.0 / 0.8)
    assert curve.scaled(2.0).expected == 0.8 and curve.observe(2, 90.0).expected == 0.8
    assert curve.observe(1, 60.0)(3) == pytest.approx(150.0 * 100 / 120), "two counts tell themselves"


def test_others_let_expect_how_a_curve_goes_on() -> None:
    curves = [RateCurve({1: 100.0, 2: 200.0 * kept}, per_node=4) for kept in (0.5, 0.6, 0.9)]
    alone = RateCurve({1: 10.0}, per_node=4)
    assert alone.efficiency is None and curves[0].efficiency == pytest.approx(0.5)
    known = [curve.efficiency or 0.0 for curve in curves]
    assert expected_efficiency([]) == 0.97
    assert expected_efficiency(known) == pytest.approx(0.75), "0.97 is one of four"
    for some in ([0.5], [0.99], [0.97, 0.98], [0.5, 0.99], [0.5, 0.6, 0.98], [0.98] * 4):
        assert expected_efficiency(some) == pytest.approx(median([*some, 0.97]))
