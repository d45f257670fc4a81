"""Roles and the cluster map, without MPI."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fleet.machine import devices
from fleet.machine.binding import ranges
from fleet.machine.cluster_map import ClusterError, _found_kinds, device_name, kinds_of, pretended, roles
from fleet.scheduling.model.cluster import Cluster
from fleet.session.console import binding_table
from fleet.session.plannable_devices import devices_to_plan


def test_rank_zero_coordinates_and_makes_samples() -> None:
    assert roles(4, 1, [0, 0, 0, 0]) == ["coordinator+preprocessor", "trainer", "trainer", "trainer"]


def test_further_preprocessors_are_spread_over_nodes() -> None:
    names = roles(8, 3, [0, 0, 0, 1, 1, 1, 2, 2])
    assert [rank for rank, name in enumerate(names) if name == "preprocessor"] == [3, 6]


def test_one_rank_is_refused_with_the_mend() -> None:
    with pytest.raises(ClusterError, match=r"1 rank.*at least 2.*mpiexec -n 2"):
        roles(1, 1, [0])


def test_preprocessors_must_leave_a_trainer() -> None:
    with pytest.raises(ClusterError, match=r"4 preprocessors in 4 ranks leave 0 trainers"):
        roles(4, 4, [0] * 4)


@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=5), preprocessors=st.integers(1, 4))
def test_devices_are_numbered_node_by_node(shape: list[int], preprocessors: int) -> None:
    cluster = pretended(tuple(shape), preprocessors, "cpu", "here")
    assert devices_to_plan(cluster).devices_per_node == tuple(shape)
    assert [place.device for place in cluster.trainers] == list(range(sum(shape)))
    nodes = [place.node for place in cluster.trainers]
    assert nodes == sorted(nodes)
    assert len(cluster.preprocessors) == preprocessors
    for node in cluster.nodes:
        assert cluster.lowest_rank(node) == min(cluster.ranks_of(node))


def test_trainers_next_to_each_other_share_no_accelerator() -> None:
    cluster = pretended((4, 2), 2, "cuda", "here", members=2)
    assert [place.device_name for place in cluster.trainers] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"] + [
        "cuda:0"
    ] * 2
    assert cluster.sharing == ((0, 2), (1, 3), (4, 5)) and cluster.record()["members_per_device"] == 2
    assert pretended((4,), 1, "cuda", "here").sharing == pretended((4,), 1, "cpu", "here", members=2).sharing == ()


def test_a_pretend_cluster_must_have_the_trainers_that_there_are() -> None:
    from fleet.machine.cluster_map import _pretended_nodes

    with pytest.raises(ClusterError, match="12 devices needs 12 trainers, but there are 3"):
        _pretended_nodes(4, 1, (4, 4, 4))


def test_the_binding_table_has_a_row_for_each_rank() -> None:
    assert binding_table(pretended((2, 2), 1, "cpu", "here")).row_count == 5


@pytest.mark.parametrize(
    ("numbers", "text"), [((), ""), ((3,), "3"), ((0, 1, 2), "0-2"), ((0, 1, 4, 6, 7), "0-1,4,6-7")]
)
def test_ranges(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(numbers) == text


@pytest.mark.skipif(torch.accelerator.is_available(), reason="torch sees an accelerator here")
def test_a_machine_s_gpus_that_torch_does_not_see_are_no_reason_to_train_on_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "FILES", tmp_path)
    for name in devices.MASKS:
        monkeypatch.delenv(name, raising=False)
    assert device_name("auto", 0) == "cpu"
    (tmp_path / "nvidia0").touch()
    with pytest.raises(ClusterError, match=r"'auto': this machine has GPUs.*fleet doctor.*set the device to cpu"):
        device_name("auto", 0)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1")
    with pytest.raises(ClusterError, match=r"GPUs.*doctor` says which\); mend"):
        device_name("auto", 0)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    with pytest.raises(ClusterError, match="HIP_VISIBLE_DEVICES=1 counts .* ROCR_VISIBLE_DEVICES=1 leaves: unset"):
        device_name("auto", 0)
    assert device_name("cpu", 0) == "cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # hidden on purpose
    assert device_name("auto", 0) == "cpu"


def test_kinds_are_models_with_memory_where_one_model_has_several_and_processors() -> None:
    small, large = {"model": "A100", "bytes": 40 * 2**30}, {"model": "A100", "bytes": 80 * 2**30}
    other = {"model": "V100", "bytes": 16 * 2**30}
    assert _found_kinds([small, large, other], ["cpu"] * 3) == ["A100, 40.0 GiB", "A100, 80.0 GiB", "V100"]
    assert _found_kinds([{}, {}], ["Xeon", "Epyc"]) == ["Xeon", "Epyc"]


def test_a_person_names_kinds_and_the_others_are_what_was_found() -> None:
    assert kinds_of(["cpu"] * 3, {}) == [None] * 3, "they are alike"
    assert kinds_of(["cpu"] * 3, {"half": [1]}) == ["cpu", "half", "cpu"]
    with pytest.raises(ClusterError, match="resources.kinds names device 3 as half, and there are 3 trainers, 0 to 2"):
        kinds_of(["cpu"] * 3, {"half": [3]})


def test_neighbours_of_one_kind_are_a_node_for_policies_and_rates_are_kept_by_kind() -> None:
    cluster = pretended((2, 2), 1, "cpu", "here", kinds={"half": [1, 2]})
    assert devices_to_plan(cluster) == Cluster((1, 1, 1, 1), ("cpu", "half", "half", "cpu"))
    assert cluster.record()["devices_per_node"] == [2, 2], "the journal has the real nodes"
    assert cluster.rated == {"cpu": "cpu", "half": "cpu, half"} and cluster.devices_of("half") == [1, 2]
