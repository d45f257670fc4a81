"""Epochs end at whole seconds, and what is truly left is taken along by moves."""

from __future__ import annotations

import pytest

from benchmarks.papers.sia_machine import REPORT, stretch


def test_an_epoch_ends_at_a_whole_second() -> None:
    there = stretch(26.0, 26.0, 10.0, since=7.0)
    assert there.seconds == 3.0 and there.pace == pytest.approx(26 / 3)


def test_a_move_takes_along_what_is_truly_left() -> None:
    there = stretch(26.0, 26.0, 10.0, since=7.0)
    shown = 26.0 - there.pace  # a second later
    assert there.left_at(shown) == pytest.approx(16.0)
    moved = stretch(shown, there.left_at(shown), 4.0, since=20.0)
    assert moved.seconds == 4.0 and moved.left_at(0.0) == pytest.approx(0.0)


@pytest.mark.parametrize(("left", "after"), [(26.0, False), (34.0, True)])
def test_an_epoch_that_is_over_with_a_report_ends_before_it_and_another_after(left: float, after: bool) -> None:
    end = REPORT - 3 + stretch(left, left, 10.0, since=REPORT - 3).seconds
    assert (end > REPORT) is after and end == pytest.approx(REPORT, abs=1e-4)


def test_an_epoch_that_ends_a_little_late_puts_the_next_ones_back_on_whole_seconds() -> None:
    since = REPORT + 1e-5
    assert since + stretch(50.0, 50.0, 10.0, since).seconds == pytest.approx(REPORT + 5, abs=1e-9)


def test_an_epoch_over_within_half_a_second_takes_next_to_no_time() -> None:
    assert 0 < stretch(3.0, 3.0, 10.0, since=7.0).seconds < 1e-4
