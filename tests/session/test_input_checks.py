"""What a run refuses before it begins: with the value, the rule and the mend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fleet.machine.cluster_map import ClusterMap
from fleet.session.input_checks import BatchTrials, check_input
from fleet.spec import SpecError
from fleet.workers.agreement import BadInput
from fleet.workers.runtime import Runtime

Runtimes = Callable[..., Runtime]
Clusters = Callable[..., ClusterMap]


def with_places(cluster: ClusterMap, **changes: Any) -> ClusterMap:
    return ClusterMap(tuple(replace(place, **changes) for place in cluster.places))


def test_what_is_right_gives_the_jobs_sizes(runtime: Runtimes, cluster: Clusters) -> None:
    sizes = check_input(runtime({"name": "a"}, {"name": "b"}), cluster(trainers=2), BatchTrials({}))
    assert sizes["a"] == sizes["b"]
    assert sizes["a"].parameters == 48 * 4 + 4 + 4 * 10 + 10


def test_trainers_that_could_never_work_are_refused(runtime: Runtimes, cluster: Clusters) -> None:
    with pytest.raises(BadInput, match="3 trainers are more than the 2 virtual workers.*start at most 2 trainers"):
        check_input(runtime(), cluster(trainers=3), BatchTrials({}))


def test_a_step_that_is_larger_than_its_data_is_refused(runtime: Runtimes, cluster: Clusters) -> None:
    with pytest.raises(SpecError, match="batch"):
        check_input(runtime({"name": "a", "batch_size": 60}), cluster(), BatchTrials({}))


def test_a_network_that_fits_no_device_is_refused(runtime: Runtimes, cluster: Clusters) -> None:
    wide = {"name": "trainers.zoo:MLP", "arguments": {"inputs": 48, "widths": [2_000_000]}}
    with pytest.raises(BadInput, match="job a needs about .* GiB .* make its batch or the network smaller"):
        check_input(runtime({"name": "a", "model": wide}), cluster(), BatchTrials({}))
    check_input(runtime({"name": "a", "model": wide}, resources={"memory_gib": 64.0}), cluster(), BatchTrials({}))


def test_a_network_has_to_fit_its_share_of_a_device(runtime: Runtimes, cluster: Clusters) -> None:
    need = check_input(runtime({"name": "a"}), cluster(), BatchTrials({}))["a"].device_bytes(2)
    places = with_places(cluster(trainers=2), device_bytes=3 * need).places
    check_input(runtime({"name": "a"}), ClusterMap(places, members=2), BatchTrials({}))
    with pytest.raises(BadInput, match=r"each of the 3 trainers of a device has .*members_per_device \(now 3\)"):
        check_input(runtime({"name": "a"}), ClusterMap(places, members=3), BatchTrials({}))


def test_a_ring_that_shared_memory_cannot_hold_is_refused(runtime: Runtimes, cluster: Clusters) -> None:
    little = with_places(cluster(), shared_bytes=2**16)
    with pytest.raises(BadInput, match="the rings need .* on node-0, and /dev/shm has 0.1 MiB free.*ring_samples"):
        check_input(runtime(), little, BatchTrials({}))
