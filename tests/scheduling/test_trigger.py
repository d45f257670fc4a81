"""A policy is asked at once, at the ends of intervals, or when enough has happened."""

import math
from typing import Any

import pytest

from fleet.scheduling.model.policy import Trigger


def test_without_an_interval_nothing_waits() -> None:
    assert Trigger().due(7.0, 1) == 7.0
    assert Trigger().due(7.0, 0) == math.inf


def test_events_wait_for_the_end_of_the_interval() -> None:
    trigger = Trigger(interval=60)
    assert [trigger.due(now, 1) for now in (0.0, 0.5, 60.0, 61.0)] == [0, 60, 60, 120]


def test_enough_events_do_not_wait() -> None:
    trigger = Trigger(interval=60, events=3)
    assert [trigger.due(5.0, waiting) for waiting in (1, 2, 3)] == [60, 60, 5]


@pytest.mark.parametrize("wrong", [{"interval": -1.0}, {"events": -1}, {"interval": math.nan}])
def test_negative_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="both must be 0 or more"):
        Trigger(**wrong)
