"""Configurations of a cluster, and devices for them."""

from __future__ import annotations

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.placing.configurations import Configuration, configuration_of, configurations_of, placed

CLUSTER = Cluster((4, 4, 2), ("a", "a", "b"))


def state(running: dict[str, tuple[int, ...]], names: str = "xyz") -> State:
    return State.of(CLUSTER, [JobState(name, RateCurve({1: 1.0}, 4), 8) for name in names], running)


def test_parts_of_a_node_and_whole_nodes() -> None:
    assert configurations_of(CLUSTER) == (
        Configuration("a", 1, 1), Configuration("a", 1, 2), Configuration("a", 1, 4), Configuration("a", 2, 8),
        Configuration("b", 1, 1), Configuration("b", 1, 2),
    )  # fmt: skip
    assert configuration_of((0, 1), CLUSTER) == Configuration("a", 1, 2)
    assert configuration_of((3, 4), CLUSTER) == Configuration("a", 2, 2)


def test_who_keeps_a_configuration_keeps_the_devices() -> None:
    found = placed({"x": Configuration("a", 1, 2), "y": Configuration("a", 1, 4)}, state({"x": (5, 6)}))
    assert found == {"x": (5, 6), "y": (0, 1, 2, 3)}


def test_scattered_jobs_make_room_for_a_whole_node() -> None:
    wanted = {"x": Configuration("a", 1, 1), "y": Configuration("a", 1, 1), "z": Configuration("a", 1, 4)}
    found = placed(wanted, state({"x": (0,), "y": (4,)}))
    assert len(found["z"]) == 4 and configuration_of(found["z"], CLUSTER).nodes == 1
    assert not set(found["x"] + found["y"]) & set(found["z"])


def test_what_failed_devices_cannot_hold_waits() -> None:
    from dataclasses import replace

    broken = replace(state({}), unavailable=frozenset({0, 4}))
    assert placed({"x": Configuration("a", 1, 4), "y": Configuration("a", 1, 2)}, broken).keys() == {"y"}
