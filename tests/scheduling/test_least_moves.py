"""Devices for configurations: who is moved to make room, and that all have what they shall have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.placing.configurations import (
    Configuration,
    configuration_of,
    configurations_of,
    placed,
    placed_with_least_moves,
)

Devices = tuple[int, ...]
CLUSTER = Cluster((4, 4, 2), ("a", "a", "b"))
ONE, TWO, FOUR, EIGHT = (Configuration("a", nodes, each) for nodes, each in ((1, 1), (1, 2), (1, 4), (2, 8)))


def state(
    running: dict[str, Devices],
    names: str = "wxyz",
    cluster: Cluster = CLUSTER,
    restart: dict[str, float] | None = None,
) -> State:
    curve = RateCurve({1: 1.0}, 16)
    jobs = [JobState(name, curve, 16, restart=(restart or {}).get(name, 1.0)) for name in names]
    return State.of(cluster, jobs, running)


def test_who_keeps_a_configuration_keeps_the_devices() -> None:
    found = placed_with_least_moves({"x": TWO, "y": FOUR}, state({"x": (5, 6)}))
    assert found == {"x": (5, 6), "y": (0, 1, 2, 3)}


@pytest.mark.parametrize(("costly", "moved"), [("x", "y"), ("y", "x")])
def test_the_job_goes_that_restarts_in_less_time(costly: str, moved: str) -> None:
    had: dict[str, Devices] = {"x": (0,), "y": (4,)}
    found = placed_with_least_moves({"x": ONE, "y": ONE, "z": FOUR}, state(had, restart={costly: 9.0}))
    assert found[costly] == had[costly] and found[moved] != had[moved]
    assert configuration_of(found["z"], CLUSTER) == FOUR


def test_two_quick_jobs_go_rather_than_a_slow_one() -> None:
    """On the first node two jobs of 3 s each are in the way, on the second one of 7 s."""
    had: dict[str, Devices] = {"w": (0,), "x": (1,), "y": (4,)}
    found = placed_with_least_moves(
        {"w": ONE, "x": ONE, "y": ONE, "z": FOUR}, state(had, restart={"w": 3.0, "x": 3.0, "y": 7.0})
    )
    assert found["y"] == (4,) and found["z"] == (0, 1, 2, 3)


def test_whole_nodes_are_cleared_of_what_fits_elsewhere() -> None:
    cluster = Cluster((4, 4, 4))
    one, eight = Configuration("", 1, 1), Configuration("", 2, 8)
    had: dict[str, Devices] = {"x": (0,), "y": (4,), "w": (8,)}
    found = placed_with_least_moves(
        {**dict.fromkeys("wxy", one), "z": eight}, state(had, cluster=cluster, restart={"y": 9.0})
    )
    assert configuration_of(found["z"], cluster) == eight and found["y"] == (4,)


def test_what_failed_devices_cannot_hold_waits() -> None:
    broken = replace(state({}), unavailable=frozenset({0, 4}))
    assert placed_with_least_moves({"x": FOUR, "y": TWO}, broken).keys() == {"y"}


def test_who_is_given_devices_stays_on_them() -> None:
    had: dict[str, Devices] = {"x": (0,), "y": (4,)}
    found = placed_with_least_moves({"x": ONE, "y": ONE, "z": FOUR}, state(had, restart={"y": 9.0}), {"x": (0,)})
    assert found["x"] == (0,) and found["z"] == (4, 5, 6, 7)


@pytest.mark.parametrize("seed", range(60))
def test_all_have_their_configuration_and_few_are_moved(seed: int) -> None:
    """Plans that fit by count, after others: as many have devices as if all were placed anew, and fewer are moved."""
    draw, cluster = np.random.default_rng(seed), Cluster((8, 8, 8, 4, 4, 4), ("a", "a", "a", "b", "b", "b"))
    names, moved, anew = "abcdefghijklmnop", 0, 0
    had: dict[str, Devices] = {}
    for _ in range(10):
        wanted = chosen(draw, names, cluster)
        now = state(had, names, cluster, {name: float(draw.integers(1, 9)) for name in names})
        found, other = placed_with_least_moves(wanted, now), placed(wanted, now)
        assert found.keys() == wanted.keys()
        assert all(configuration_of(devices, cluster) == wanted[name] for name, devices in found.items())
        assert len(set().union(*found.values())) == sum(map(len, found.values()))
        moved += sum(found[name] != had.get(name) for name in found)
        anew += sum(other[name] != had.get(name) for name in other)
        had = found
    assert moved <= anew


def chosen(draw: np.random.Generator, names: str, cluster: Cluster) -> dict[str, Configuration]:
    """Configurations at random that fit by their counts."""
    left, wanted, ways = cluster.counts(), {}, configurations_of(cluster)
    for name in draw.permutation(list(names)).tolist():
        way = ways[int(draw.integers(len(ways)))]
        if way.devices <= left[way.kind]:
            left[way.kind] -= way.devices
            wanted[name] = way
    return wanted
