"""Jobs that are promised so many devices in the mean of each window of time."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import TOLERANCE, JobState, ServiceLevel, ServiceWindow
from fleet.scheduling.model.policy import Plan, State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.easyscale import EasyScale
from fleet.spec.policies import breaks_service_level
from tests.scheduling.support.all_policies import NAMES
from tests.scheduling.support.kinds_of_device import MIXED

ONE, FOUR = Cluster((1,)), Cluster((4,))


def elastic(name: str, workers: int = 4, devices: float = 0.0, window: float = 100.0, **more: Any) -> JobState:
    level = ServiceLevel(devices, window) if devices else None
    return JobState(name, RateCurve({1: 2.0}, 4, workers=workers), workers, service_level=level, **more)


def plan(state: State) -> Plan:
    found = EasyScale().plan(state)
    validate(found.whole_of(state.running), state)
    return found


def held_for(job: JobState, devices: int, since: float) -> JobState:
    return job.changed(held=devices, since=since, ready=since, pace=2.0 * devices)


def test_a_job_takes_what_it_is_promised_from_one_that_is_promised_nothing() -> None:
    state = State.of(FOUR, [elastic("a"), elastic("b", devices=3.0, arrival=5.0)], {"a": (0, 1, 2, 3)}, time=5.0)
    found = plan(state).whole_of(state.running)
    assert len(found["b"]) == 3 and len(found["a"]) == 1


def test_without_a_promise_nobody_gives_up_a_device() -> None:
    state = State.of(FOUR, [elastic("a"), elastic("b", arrival=5.0)], {"a": (0, 1, 2, 3)}, time=5.0)
    assert plan(state).whole_of(state.running) == {"a": (0, 1, 2, 3)}


def test_whole_jobs_stop_where_their_least_devices_are_needed() -> None:
    state = State.of(ONE, [elastic("a"), elastic("b", devices=0.5, arrival=5.0)], {"a": (0,)}, time=5.0)
    found = plan(state)
    assert found.allocation == {"b": (0,)} and found.stopped == ("a",)


def test_two_halves_take_turns_on_one_device() -> None:
    """Each has the device for half of each window, and the policy asks to be woken when it changes hands."""
    a, b = elastic("a", devices=0.5), elastic("b", devices=0.5)
    first = plan(State.of(ONE, [a, b]))
    assert first.allocation == {"a": (0,)} and first.wake == 50.0
    a = held_for(a, 1, 0.0)
    early = plan(State.of(ONE, [a, b], {"a": (0,)}, time=49.0, promises=first.promises))
    assert not early.allocation and not early.stopped and early.wake == 50.0
    second = plan(State.of(ONE, [a, b], {"a": (0,)}, time=50.0, promises=first.promises))
    assert second.allocation == {"b": (0,)} and second.stopped == ("a",) and second.wake == 100.0


def test_what_became_of_a_window_is_told_once_and_by_how_much() -> None:
    a = elastic("a", devices=0.5)
    begun = plan(State.of(ONE, [a], time=10.0))
    a = held_for(a, 1, 50.0)
    over = plan(State.of(ONE, [a], {"a": (0,)}, time=100.0, promises=begun.promises))
    (window,) = over.windows
    assert (window.job, window.begin, window.end, window.promised, window.had) == ("a", 10.0, 100.0, 45.0, 50.0)
    assert not window.broken
    promises = {**begun.promises, **over.promises}
    assert not plan(State.of(ONE, [a], {"a": (0,)}, time=101.0, promises=promises)).windows
    late = plan(State.of(ONE, [a], {"a": (0,)}, time=300.0, promises=promises)).windows
    assert [(each.begin, each.had, each.broken) for each in late] == [(100.0, 100.0, False), (200.0, 100.0, False)]


def test_a_first_window_that_would_be_short_lasts_until_the_end_of_the_next() -> None:
    found = plan(State.of(ONE, [elastic("a", devices=0.5)], time=60.0))
    assert found.promises["a"].window.end == 200.0


def test_a_promise_that_cannot_be_kept_any_more_is_told_before_its_window_ends() -> None:
    a = elastic("a", 2, devices=2.0)
    begun = plan(State.of(FOUR, [a], time=0.0))
    lost = held_for(a, 0, 0.0).changed(pace=0.0)
    broken = plan(State.of(FOUR, [lost], time=50.0, promises=begun.promises, unavailable=frozenset({0, 1, 2})))
    (window,) = broken.windows
    assert window.broken and window.had == 0.0 and window.end == 100.0
    late = State.of(FOUR, [lost], time=100.0, promises={**begun.promises, **broken.promises})
    assert not plan(late).windows, "it was told"


def test_where_more_is_promised_than_there_is_the_more_important_have_theirs() -> None:
    low, high = elastic("low", devices=4.0), elastic("high", 3, devices=3.0, priority=1.0, arrival=5.0)
    begun = plan(State.of(FOUR, [low]))
    low = held_for(low, 4, 0.0)
    state = State.of(FOUR, [low, high], {"low": (0, 1, 2, 3)}, time=5.0, promises=begun.promises)
    found = plan(state).whole_of(state.running)
    assert len(found["high"]) == 3 and len(found["low"]) == 1
    late = State.of(FOUR, [low, high.changed(priority=-1.0)], {"low": (0, 1, 2, 3)}, time=5.0, promises=begun.promises)
    assert plan(late).whole_of(late.running) == late.running


def test_those_beyond_what_there_is_have_what_the_others_leave() -> None:
    halves = [elastic(name, devices=0.5, priority=1.0) for name in "ab"]
    greedy = elastic("greedy", 2, devices=2.0)
    two = Cluster((2,))
    begun = plan(State.of(two, [*halves, greedy]))
    assert begun.allocation.keys() == {"a", "b"}
    served = [held_for(job, 1, 0.0) for job in halves]
    running = {"a": begun.allocation["a"], "b": begun.allocation["b"]}
    early = State.of(two, [*served, greedy], running, time=49.0, promises=begun.promises)
    assert plan(early).whole_of(running) == running
    after = plan(State.of(two, [*served, greedy], running, time=50.0, promises=begun.promises))
    assert len(after.allocation["greedy"]) == 2


def test_a_shortage_within_the_tolerance_widens_nobody() -> None:
    a = elastic("a", devices=1.0)
    begun = plan(State.of(FOUR, [a, elastic("b")], time=0.0))
    short = State.of(FOUR, [a, elastic("b", 3)], {"b": (1, 2, 3)}, time=1.0, promises=begun.promises)
    assert len(plan(short).allocation["a"]) == 1, "a second was lost, of which the tolerance is two"
    missed = State.of(FOUR, [a, elastic("b")], {"b": (0, 1, 2, 3)}, time=10.0, promises=begun.promises)
    assert len(plan(missed).allocation["a"]) == 2


def test_a_job_that_may_not_mix_kinds_has_its_devices_on_one() -> None:
    a, b = elastic("a", 8, mixed_kinds=True), elastic("b", 4, devices=2.0, arrival=1.0)
    state = State.of(MIXED, [a, b], {"a": tuple(range(MIXED.size))}, time=1.0)
    found = plan(state).whole_of(state.running)["b"]
    assert len(found) >= 2 and len({MIXED.kind_of(device) for device in found}) == 1


def test_only_policies_that_hold_it_are_named() -> None:
    assert [name for name in NAMES if breaks_service_level(name) is None] == ["easyscale"]
    assert "easyscale does" in str(breaks_service_level("flotilla"))


@pytest.mark.parametrize("values", [(0.0, 1.0), (1.0, 0.0), (math.inf, 1.0), (1.0, math.nan)])
def test_a_promise_of_nothing_is_refused(values: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="above 0, and finite"):
        ServiceLevel(*values)


@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.sampled_from([0.0, 10.0, 70.0])),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 4),
    st.sampled_from([30.0, 100.0]),
)
def test_promises_that_fit_together_are_kept_whoever_comes_beside(
    parts: list[tuple[int, float, float]], devices: int, window: float
) -> None:
    """Played by hand, second by second of the policy's own wakes, with moves that take no time."""
    levels = [part * devices for _, part, _ in parts]
    while sum(levels) > devices:
        levels.pop()
    sizes = [max(workers, math.ceil(level)) for (workers, _, _), level in zip(parts, [*levels, *[0.0] * len(parts)])]
    jobs = {
        f"job-{i}": elastic(f"job-{i}", sizes[i], levels[i] if i < len(levels) else 0.0, window, arrival=parts[i][2])
        for i in range(len(parts))
    }
    cluster, now, running = Cluster((devices,)), 0.0, dict[str, tuple[int, ...]]()
    promises, windows = dict[str, Any](), list[ServiceWindow]()
    while now < 3 * window:
        state = State.of(
            cluster, [job for job in jobs.values() if job.arrival <= now], running, time=now, promises=promises
        )
        found = plan(state)
        promises, windows = {**promises, **found.promises}, [*windows, *found.windows]
        after = found.whole_of(running)
        for name, job in jobs.items():
            if after.get(name) != running.get(name):
                attained, held = job.attained_at(now), len(after.get(name, ()))
                jobs[name] = held_for(job.changed(attained=attained), held, now)
        running = after
        assert found.wake > now
        now = min([found.wake, 3 * window, *(job.arrival for job in jobs.values() if job.arrival > now)])
    assert all(not window.broken for window in windows), windows
    assert all(window.had >= window.promised * (1 - TOLERANCE) - 1e-6 for window in windows)
