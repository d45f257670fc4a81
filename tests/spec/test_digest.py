"""What determines results, and what differs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fleet.spec import ABSENT, EnsembleSpec, difference, loads, results_mapping, spec_hash


def changed(small: dict[str, Any], **sections: Any) -> EnsembleSpec:
    return EnsembleSpec.from_mapping({**copy.deepcopy(small), **sections})


def with_job(small: dict[str, Any], **keys: Any) -> EnsembleSpec:
    values = copy.deepcopy(small)
    values["jobs"][0].update(keys)
    return EnsembleSpec.from_mapping(values)


@pytest.mark.parametrize(
    "sections",
    [
        {"name": "other"},
        {"resources": {"trainers": 2, "threads": 3}},
        {"policy": "local"},
        {"checkpoints": {"every": 3}},
        {"profile": {"batches": 5}},
        {"rehearse": {"time_scale": 0.1}},
    ],
)
def test_what_does_not_change_results(small: dict[str, Any], sections: dict[str, Any]) -> None:
    assert spec_hash(changed(small, **sections)) == spec_hash(changed(small))


@pytest.mark.parametrize("keys", [{"deadline": 5}, {"priority": 3}, {"arrival": 9}, {"loss": None}])
def test_keys_of_a_job_that_do_not_change_results(small: dict[str, Any], keys: dict[str, Any]) -> None:
    assert spec_hash(with_job(small, **keys)) == spec_hash(changed(small))


@pytest.mark.parametrize(
    "keys",
    [
        {"name": "other"},
        {"seed": 1},
        {"virtual_workers": 2},
        {"batch_size": 8},
        {"evaluation_batch_size": 8},
        {"memory_format": "channels_last"},
        {"batch_range": [1, 64]},
        {"loss": "mse_loss"},
        {"stop": {"epochs": 3}},
        {"metrics": []},
        {"model": {"name": "toys:Net", "arguments": {"width": 5}}},
        {"optimizer": {"name": "SGD", "arguments": {"lr": 0.1000001}}},
        {"schedule": "X"},
    ],
)
def test_keys_of_a_job_that_change_results(small: dict[str, Any], keys: dict[str, Any]) -> None:
    assert spec_hash(with_job(small, **keys)) != spec_hash(changed(small))


def test_data_that_are_used_change_results(small: dict[str, Any]) -> None:
    toy = small["data"]["toy"]
    assert spec_hash(changed(small, data={"toy": {**toy, "transforms": ["flip"]}})) != spec_hash(changed(small))
    assert spec_hash(changed(small, data={"toy": toy, "unused": toy})) == spec_hash(changed(small))


def test_determinism_changes_results_but_for_its_defaults(small: dict[str, Any]) -> None:
    defaults = {"level": "D1", "matmul": "ieee", "convolutions": "tf32"}
    assert spec_hash(changed(small, determinism=defaults)) == spec_hash(changed(small))
    for other in ({"level": "D2"}, {"matmul": "tf32"}, {"convolutions": "ieee"}):
        assert spec_hash(changed(small, determinism=defaults | other)) != spec_hash(changed(small)), other


def test_order_and_form_do_not_matter(text: str) -> None:
    spec = loads(text)
    values = spec.to_mapping()
    values["jobs"].reverse()
    values["data"]["digits"] = dict(reversed(values["data"]["digits"].items()))
    assert spec_hash(EnsembleSpec.from_mapping(values)) == spec_hash(spec)


def test_the_digest_stays_the_same_in_later_versions(small: dict[str, Any]) -> None:
    assert spec_hash(changed(small)) == "4b53a3fba407caa4731115e6fd4711b4ea0f27ba8e89941c2c74fb161647f59a"


def test_equal_specs_have_no_difference(text: str) -> None:
    assert difference(loads(text).to_mapping(), loads(text).to_mapping()) == ()


def test_what_differs_is_told_by_path(text: str) -> None:
    other = (
        text.replace("5e-2", "0.1")
        .replace("mlp-1", "mlp-2")
        .replace("padding: 2", "padding: 3")
        .replace("trainers: 3", "trainers: 4")
    )
    found = difference(loads(text).to_mapping(), loads(other).to_mapping())
    told = {item.path: (item.first, item.second) for item in found}
    assert told["jobs.cnn-8.optimizer.arguments.lr"] == (0.05, 0.1)
    assert told["data.digits.transforms[0].random_crop.padding"] == (2, 3)
    assert told["resources.trainers"] == (3, 4)
    assert told["jobs.mlp-2"][0] is ABSENT and told["jobs.mlp-1"][1] is ABSENT
    assert "resources.trainers: 3 -> 4" in [str(item) for item in found]
    results = difference(results_mapping(loads(text)), results_mapping(loads(other)))
    assert not any(item.path.startswith("resources") for item in results) and len(results) > 3


@pytest.mark.parametrize(
    ("first", "second", "paths"),
    [
        ({"a": [1, 2]}, {"a": [1, 3]}, ["a[1]"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a"]),
        ({"a": None}, {}, ["a"]),
        ({"a": True}, {"a": 1}, ["a"]),
        ({"a": {"b": 1}}, {"a": 1}, ["a"]),
        ({"jobs": 3}, {"jobs": []}, ["jobs"]),
    ],
)
def test_differences_of_any_mappings(first: dict[str, Any], second: dict[str, Any], paths: list[str]) -> None:
    assert [item.path for item in difference(first, second)] == paths
