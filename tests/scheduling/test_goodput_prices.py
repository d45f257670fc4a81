"""`goodput` foretells what devices will cost when a job is done: less, the more of the work is done before."""

from __future__ import annotations

import numpy as np
import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies import goodput
from fleet.scheduling.variable_batch.kind_goodput import EarlierJobs, EvenShares
from fleet.spec.policies import policy

HOUR = 3600.0


def chosen(price: float) -> set[str]:
    """Who has the one device, of two jobs of one and of twenty hours that restart in a minute."""
    curve, dear = RateCurve({1: 1.0}, 1), np.full(1, price)
    both = (("long", 20), ("short", 1))
    jobs = [JobState(name, curve, 1, remaining=hours * HOUR, restart=60.0) for name, hours in both]
    past = goodput._Past(EarlierJobs(), EvenShares(), dear, dear, 0.0)
    state = State.of(Cluster((1,)), jobs, {}, memo=past)
    return set(policy("goodput", known=True).plan(state).allocation)


def test_who_is_soon_done_goes_first_where_devices_are_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(price=3.0) == {"short"}
    monkeypatch.setattr(goodput, "_left_then", lambda left, unit: np.ones(len(left)))
    assert chosen(price=3.0) == {"long"}, "its restart is the smaller part of what it has left"


def test_the_part_of_the_work_that_is_left_when_shorter_jobs_are_done() -> None:
    """Of 1 + 3 + 6 seconds, all is left at first, then 9 of 10, then 6 of 10."""
    part = goodput._left_then(np.array([6.0, 1.0, 6.0]), np.array([1.0, 1.0, 2.0]))
    assert part.tolist() == [0.6, 1.0, 0.9]
    assert goodput._left_then(np.zeros(0), np.zeros(0)).shape == (0,)
