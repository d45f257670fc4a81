"""As many trainers prepare samples as a plan leaves alone that counts with them."""

from __future__ import annotations

import math

import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.data_path import Lending
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.wrappers import WithHelpers, driven
from fleet.spec.policies import policy

LINEAR = {m: 100.0 * m for m in range(1, 9)}
CLUSTER = Cluster((4,))


def job(name: str = "a", fed: float = math.inf, most: int = 2, workers: int = 4) -> JobState:
    """A job as a driver shows it that lets so many trainers help one preprocessor."""
    curve = RateCurve(LINEAR, per_node=8)
    rate = curve if fed == math.inf else curve.capped(fed * Lending(1, most).times(most), workers)
    return JobState(name, rate, workers, remaining=1e4, fed=fed)


def planned(*jobs: JobState, most: int = 2, name: str = "local", cluster: Cluster = CLUSTER) -> tuple[int, int | None]:
    """Devices that jobs have, and trainers that prepare."""
    plan = WithHelpers(policy(name), Lending(1, most)).plan(State.of(cluster, jobs, seed=1))
    return sum(map(len, plan.allocation.values())), plan.lent


def test_devices_and_makers_are_in_balance() -> None:
    assert planned(job(fed=150.0)) == (3, 1), "with two makers more it would want all four"
    assert planned(job(fed=100.0)) == (2, 1), "with two more it would want three, and one is left"
    assert planned(job(fed=10.0)) == (1, 2)


def test_the_most_that_fit_are_found() -> None:
    cluster, most = Cluster((8,)), 7
    for fed in (30.0, 60.0, 110.0, 150.0, 260.0):
        given, lent = planned(job(fed=fed, most=most, workers=8), most=most, cluster=cluster)
        fits = [k for k in range(8) if math.ceil(fed * (1 + k) / 100) <= 8 - k]
        assert lent == max(fits) and given == math.ceil(fed * (1 + max(fits)) / 100)


def test_nobody_helps_where_preprocessors_feed_all() -> None:
    assert planned(job(fed=400.0)) == (4, 0)
    assert planned(job()) == (4, 0), "nobody knows what they make"
    assert planned(job(fed=150.0, workers=1)) == (1, 0), "it trains no faster"


def test_all_train_where_all_are_wanted() -> None:
    jobs = [job(name, fed=50.0, workers=1) for name in "abcd"]
    assert planned(*jobs) == (4, 0)
    assert planned(*jobs[:3]) == (3, 1)


@pytest.mark.parametrize("name", ["malleable", "flotilla", "fifo", "throughput", "goodput", "easyscale"])
def test_other_policies_leave_them_alone_too(name: str) -> None:
    given, lent = planned(job(fed=10.0), name=name)
    assert lent == min(2, 4 - given)


def test_a_memo_serves_the_same_number_alone() -> None:
    class Remembering(Policy):
        def plan(self, state: State) -> Plan:
            seen.append(state.memo)
            return Plan({"a": (0,)}, memo="kept")

    seen: list[object] = []
    lending = WithHelpers(Remembering(), Lending(1, 2))
    plan = lending.plan(State.of(CLUSTER, [job(fed=10.0)]))
    lending.plan(State.of(CLUSTER, [job(fed=10.0)], memo=plan.memo))
    lending.plan(State.of(CLUSTER, [job()], memo=plan.memo))
    assert plan.lent == 2 and seen == [None, "kept", None]


def test_without_lending_the_policy_stays_itself() -> None:
    local = policy("local")
    assert driven(local, CLUSTER, lending=Lending(2)) is local
