"""What jobs tell about those of their application that come after them, and what `goodput` makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.variable_batch.kind_goodput import EarlierJobs, Shapes
from fleet.spec.policies import policy

CURVE = RateCurve({1: 1.0}, 8)
ONE = np.array([[1.0, 2.0, 0.0]])


@dataclass(frozen=True)
class Linear:
    """A `KindGoodput` of one kind, as fast as it has devices."""

    application: str
    tried: int = 8
    most: int = 8
    penalty: float = 10.0

    def goodputs(self, kind: str, shapes: Shapes) -> np.ndarray:
        return np.array([float(devices) for _, devices in shapes])


def job(name: str, application: str = "net", trained: float = 0.0, **more: float) -> JobState:
    scaling = Linear(application)
    return JobState(name, CURVE, 8, scaling=scaling, trained=trained, restart=10.0, **more)  # type: ignore[arg-type]


def seen(*ends: float) -> EarlierJobs:
    earlier = EarlierJobs()
    for number, samples in enumerate(ends):
        earlier.see([job(f"done-{number}", trained=samples)], ONE, 0.0)
        earlier.see([], ONE[:0], 0.0)
    return earlier


def test_nobody_knows_what_is_left_until_a_job_of_the_application_is_done() -> None:
    earlier, fresh, other = seen(100.0), job("fresh"), job("other", "another")
    left, pace = earlier.outlook([fresh, other], np.tile(ONE, (2, 1)), np.array([40.0, 40.0]))
    assert left[0] == 60 and np.isnan(left[1])
    assert pace.tolist() == np.tile(ONE, (2, 1)).tolist()
    assert np.isnan(seen().outlook([fresh], ONE, np.array([40.0])).left[0])


def test_the_median_of_those_that_are_done_counts() -> None:
    assert seen(100.0, 100.0, 7.0).outlook([job("fresh")], ONE, np.zeros(1)).left[0] == 100


def test_who_trains_more_than_those_that_are_done_is_not_known() -> None:
    assert np.isnan(seen(100.0).outlook([job("fresh")], ONE, np.array([120.0])).left[0])


def test_goodput_to_come_is_what_earlier_jobs_had_later() -> None:
    earlier = EarlierJobs()
    for trained, rates in ((0.0, 1.0), (50.0, 4.0)):
        earlier.see([job("done", trained=trained)], ONE * rates, 0.0)
    earlier.see([job("done", trained=100.0)], ONE * 4.0, 0.0)
    earlier.see([], ONE[:0], 0.0)
    _, pace = earlier.outlook([job("fresh"), job("later")], np.tile(ONE, (2, 1)), np.array([0.0, 50.0]))
    assert pace[0].tolist() == pytest.approx([100 / (50 + 12.5), 200 / (50 + 12.5), 0.0])
    assert pace[1].tolist() == pytest.approx([4.0, 8.0, 0.0])


def test_a_job_without_an_application_is_left_as_it_is() -> None:
    plain = JobState("plain", CURVE, 8)
    earlier = EarlierJobs()
    earlier.see([plain], ONE, 0.0)
    earlier.see([], ONE[:0], 0.0)
    left, pace = earlier.outlook([plain], ONE, np.zeros(1))
    assert np.isnan(left[0]) and pace.tolist() == ONE.tolist()


def test_short_jobs_go_first_once_jobs_like_them_have_been_seen() -> None:
    cluster, chosen = Cluster((1,)), policy("goodput")
    memo = None
    for time, trained in ((0.0, 0.0), (200.0, 200.0)):
        memo = chosen.plan(State.of(cluster, [job("short-0", "short", trained)], time=time, memo=memo)).memo
    memo = chosen.plan(State.of(cluster, [], time=200.0, memo=memo)).memo
    waiting = [job("long-1", "long", arrival=200.0), job("short-1", "short", arrival=200.0)]
    memo = chosen.plan(State.of(cluster, waiting, time=200.0, memo=memo)).memo
    told = chosen.plan(State.of(cluster, waiting, time=200.0, memo=memo))
    assert set(told.allocation) == {"short-1"}
