"""Themis: leases for those who are treated worst."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy

CURVE = RateCurve({1: 1.0, 2: 2.0, 4: 4.0}, per_node=4)
NOW = (250.0, 300.0)  # while leases of 100 s last, and as they end


def job(name: str, gang: int = 1, **more: float) -> JobState:
    return JobState(name, CURVE, 4, gang=gang, **{"remaining": 100.0, **more})  # type: ignore[arg-type]


def asked(*jobs: JobState, running: Mapping[str, tuple[int, ...]], now: float, devices: int = 4) -> Plan:
    held = [replace(job, held=len(running.get(job.name, ()))) for job in jobs]
    return policy("themis", lease=100.0).plan(State.of(Cluster((devices,)), held, running, time=now))


def test_who_is_treated_worst_gets_the_lease() -> None:
    # rho = (now - arrival + 100 / 4) / (100 / 4 * 2): the first has waited for longer.
    jobs = [job("runs", 4, arrival=150), job("waits", 4, arrival=0)]
    running = {"runs": (0, 1, 2, 3)}
    assert asked(*jobs, running=running, now=200).allocation == {"waits": (0, 1, 2, 3)}


def test_nobody_is_stopped_before_the_leases_end() -> None:
    jobs = [job("runs", 4, arrival=150), job("waits", 4, arrival=0)]
    plan = asked(*jobs, running={"runs": (0, 1, 2, 3)}, now=199)
    assert plan.allocation == {"runs": (0, 1, 2, 3)} and plan.wake == 200


def test_a_short_job_is_treated_worse_by_the_same_wait() -> None:
    short, long = job("short", 4, remaining=40.0), job("long", 4, remaining=400.0)
    # (10 + 10) / (10 * 2) = 1 and (10 + 100) / (100 * 2) = 0.55
    assert asked(long, short, running={}, now=10).allocation == {"short": (0, 1, 2, 3)}


def test_what_was_trained_counts_as_ideal_time_too() -> None:
    begun, new = job("begun", 4, remaining=40.0, trained=360.0), job("new", 4, remaining=400.0)
    # (10 + 10) / (100 * 2) = 0.1 and (10 + 100) / (100 * 2) = 0.55
    assert set(asked(begun, new, running={}, now=10).allocation) == {"new"}


def test_a_small_job_passes_a_large_one_that_does_not_fit() -> None:
    jobs = [job("runs", 3, arrival=0), job("large", 2, arrival=0), job("small", 1, arrival=45)]
    assert set(asked(*jobs, running={"runs": (0, 1, 2)}, now=50).allocation) == {"runs", "small"}


def test_nobody_is_woken_where_nobody_waits() -> None:
    assert asked(job("a"), running={"a": (0,)}, now=200).wake == float("inf")


@pytest.mark.parametrize(("nodes", "moves"), [((4,), {}), ((4, 4), {"hit": (4, 5)})])
@pytest.mark.parametrize("now", [200.0, 250.0])
def test_who_has_lost_a_device_asks_for_others(
    nodes: tuple[int, ...], moves: dict[str, tuple[int, ...]], now: float
) -> None:
    """A live run shows the lost device as held until the job's group has ended."""
    jobs = {"hit": job("hit", 2, arrival=100.0, held=2), "other": job("other", 2, held=2)}
    state = State(Cluster(nodes), jobs, {"hit": (0, 1), "other": (2, 3)}, unavailable=frozenset({0}), time=now)
    plan = policy("themis", lease=100.0).plan(state)
    assert plan.allocation == {"other": (2, 3), **moves}
    assert plan.wake == (float("inf") if moves else 300.0)


def test_a_loss_costs_nobody_else_its_lease() -> None:
    jobs = {"hit": job("hit", 2, held=2), "other": job("other", 2, arrival=100.0, held=2)}  # hit is treated worse
    running, lost = {"hit": (0, 1), "other": (2, 3)}, frozenset({0})
    plans = [policy("themis", lease=100.0).plan(State(Cluster((4,)), jobs, running, {}, lost, 0, now)) for now in NOW]
    assert [plan.allocation for plan in plans] == [{"other": (2, 3)}, {"hit": (1, 2)}]


def test_who_holds_more_than_its_gang_leaves_the_rest_to_others() -> None:
    """No driver shows this, as every job that this policy runs holds its gang."""
    state = State.of(Cluster((4,)), [job("waits"), job("runs")], {"runs": (0, 1, 2, 3)})
    assert policy("themis").plan(state).allocation == {"runs": (0,), "waits": (1,)}


def test_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="policy themis: lease is 0 s"):
        policy("themis", lease=0)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.floats(0, 200), st.floats(1, 1e4), st.booleans()), max_size=10),
    st.sampled_from([200.0, 250.0]),
)
def test_gangs_whole_or_not_at_all(drawn: list[tuple[int, float, float, bool]], now: float) -> None:
    free, running, jobs = list(range(8)), {}, []
    for index, (gang, arrival, remaining, runs) in enumerate(drawn):
        jobs.append(replace(job(f"j{index}", gang, arrival=arrival, remaining=remaining), limit=5))
        if runs and gang <= len(free):
            running[f"j{index}"], free = tuple(free[:gang]), free[gang:]
    state = State.of(Cluster((4, 4)), jobs, running, time=now)
    plan = policy("themis", lease=100.0).plan(state)
    validate(plan.allocation, state)
    assert all(len(devices) == state.by_name[name].gang for name, devices in plan.allocation.items())
    left = 8 - sum(map(len, plan.allocation.values()))
    assert all(job.gang > left for name, job in state.by_name.items() if name not in plan.allocation)
    if now == 250:
        assert running.items() <= plan.allocation.items(), "the leases have not ended"
