"""States and allocations are consistent, or refused with what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State, validate
from tests.scheduling.support.printed import job

JOBS = (job("a", 10, 20), job("b", 10))
CLUSTER = Cluster((2, 1))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_devices_are_numbered_node_by_node(sizes: list[int]) -> None:
    cluster = Cluster(tuple(sizes))
    assert cluster.size == sum(sizes)
    assert [list(cluster.devices_of(node)) for node in range(len(sizes))] == [
        [device for device in range(cluster.size) if cluster.node_of(device) == node] for node in range(len(sizes))
    ]
    with pytest.raises(ValueError, match=f"device {cluster.size} is not among"):
        cluster.node_of(cluster.size)


def test_who_stays_and_who_waits() -> None:
    state = State.of(CLUSTER, (*JOBS, job("c", 5)), {"b": (2,), "a": (0,)}, unavailable=frozenset({2}))
    assert state.staying == {"a": (0,)}
    assert [waiting.name for waiting in state.waiting] == ["c"]
    assert (state.free, state.available) == ([1], [0, 1])


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        ({"x": (0,)}, "job x is allocated, but is not among the unfinished jobs"),
        ({"a": ()}, "job a is allocated without a device"),
        ({"b": (0, 2)}, "job b is given 2 devices, but can use at most 1"),
        ({"a": (0,), "b": (0,)}, "device 0 serves at most one job, but a and b have it"),
        ({"a": (0, 0)}, "device 0 serves at most one job"),
        ({"a": (3,)}, "job a has device 3, but the cluster's are 0 .. 2"),
        ({"a": (1,)}, "job a is given device 1, which is unavailable"),
    ],
)
def test_bad_allocations_are_named(allocation: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        validate(allocation, State.of(CLUSTER, JOBS, unavailable=frozenset({1})))


def test_impossible_states_are_refused() -> None:
    with pytest.raises(ValueError, match="'a' occurs 2 times"):
        State.of(CLUSTER, (JOBS[0], JOBS[0]))
    with pytest.raises(ValueError, match="job c is running, but is not among the unfinished jobs"):
        State.of(CLUSTER, JOBS, {"c": (0,)})
    with pytest.raises(ValueError, match="at least one node"):
        Cluster(())
    with pytest.raises(ValueError, match="job a: limit is 0"):
        JobState("a", JOBS[0].rate, 0)
