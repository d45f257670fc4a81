"""Rates by batch of a job of virtual workers: by hand, and what they must never do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.batch_scaling import BatchRange, BatchScaling
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.throughput import curve_of

# 4 workers; a step of 8 samples takes 8 s alone, and 4 s + 1 s of summing on two devices, 2 s + 2 s on four.
CURVE = RateCurve({1: 1.0, 2: 8 / 5, 4: 2.0}, per_node=4, workers=4)
RANGE = BatchRange(8, 32, 4)
# A step of 32 takes 16 s alone: half of what proportion would say.
SCALING = BatchScaling(CURVE, 8, RANGE, {32: 2.0})


def test_rates_by_hand() -> None:
    assert [SCALING.rate(count, 8) for count in (1, 2, 4)] == pytest.approx([1, 8 / 5, 2])
    assert [SCALING.rate(count, 32) for count in (1, 2, 4)] == pytest.approx([2, 32 / 9, 32 / 6])
    assert SCALING.rate(1, 20) == pytest.approx(20 / 12)  # between the two measured steps
    assert SCALING.rate(2, 20) == pytest.approx(20 / 7)


def test_without_other_measurements_steps_are_proportional() -> None:
    alone = BatchScaling(CURVE, 8, RANGE)
    assert alone.rate(1, 32) == pytest.approx(1.0)
    assert alone.rate(4, 32) == pytest.approx(32 / 10)  # the 2 s of summing are paid less often


def test_the_curve_of_a_batch_has_the_counts_that_were_measured() -> None:
    curve = SCALING.curve_of(32)
    assert list(curve.measured) == [1, 2, 4] and curve.workers == 4
    assert [curve(count) for count in (1, 2, 4)] == pytest.approx([2, 32 / 9, 32 / 6])


def test_policies_are_told_the_best_batch_by_count() -> None:
    job = JobState("a", CURVE, 4, batch=8, batches=RANGE.ends, scaling=SCALING)
    curve = curve_of(job, "variable", 4)
    assert [RANGE.nearest(batch) for batch in curve.batches.tolist()] == [32, 32, 32, 32]
    assert curve.factors[0] == pytest.approx(1)
    assert curve_of(job, "min", 4).batches.tolist() == [8, 8, 8, 8]


def test_ranges_hold_multiples_of_the_workers() -> None:
    odd = BatchRange(9, 31, 4)
    assert odd.ends == (12, 28) and odd.sizes == (3, 7)
    assert [odd.nearest(batch) for batch in (1, 13, 14, 100)] == [12, 12, 16, 28]
    assert BatchRange(1, 5, 4).ends == (4, 4)
    with pytest.raises(ValueError, match="no batch of 5 to 7 samples"):
        BatchRange(5, 7, 4)


@given(
    st.integers(1, 8), st.integers(1, 16), st.integers(0, 64), st.floats(0.1, 10), st.floats(0.1, 10), st.data()
)  # fmt: skip
def test_rates_are_positive_and_own_ones_are_the_curve_s(
    workers: int, size: int, more: int, single: float, other: float, data: st.DataObject
) -> None:
    own, count = workers * size, data.draw(st.integers(1, workers))
    curve = RateCurve({1: single, workers: single * data.draw(st.floats(0.5, workers))}, per_node=4, workers=workers)
    allowed = BatchRange(own, own + workers * more, workers)
    scaling = BatchScaling(curve, own, allowed, {allowed.ends[1]: other} if more else {})
    assert scaling.rate(count, data.draw(st.integers(1, 1000))) > 0
    assert scaling.rate(1, own) == pytest.approx(curve(1))
    most = curve(1) * workers / -(-workers // count)  # a device cannot do more than its part
    assert scaling.rate(count, own) == pytest.approx(min(curve(count), most))
