"""A search by several metrics is the same on one device and on three, and its Pareto front is told everywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

import fleet
from fleet.models.errors import RunError
from tests.live.search.conftest import SEARCH
from tests.live.search.test_searching_runs import assert_same_search, decisions
from tests.live.support.ensembles import Ensemble, RunFolder, write_ensemble
from tests.live.support.processes import FLEET, run

SEVERAL: dict[str, Any] = {
    **SEARCH,
    "metric": ["accuracy", "loss"],
    "sampler": {"name": "nsga2", "arguments": {"population_size": 2}},
    "job": {"model": {"name": "parts:Faulty"}, "stop": {"epochs": 2}},
    "stopping": {"name": "halving", "eta": 2, "rungs": [1, 2]},
    "prefetch": 1,
}


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    folder = tmp_path_factory.mktemp("several")
    return write_ensemble(folder, [], measured=False, search=SEVERAL, policy={"name": "local"}, ensemble=False)


@pytest.fixture(scope="module")
def on_one_device(several: Ensemble) -> RunFolder:
    ended = run(several.plain("one"), several.folder)
    assert ended.code == 0, ended.output
    return several.left("one")


def dominates(mine: list[float], other: list[float]) -> bool:
    return mine != other and mine[0] >= other[0] and mine[1] <= other[1]


def test_the_front_is_told_everywhere(several: Ensemble, on_one_device: RunFolder) -> None:
    search = on_one_device.summary["search"]
    points = {t["name"]: [t["value"], *t["further"]] for t in search["trials"] if t["value"] is not None}
    wanted = [name for name in points if not any(dominates(other, points[name]) for other in points.values())]
    assert search["front"] == wanted and search["best_value"] == max(accuracy for accuracy, _ in points.values())
    assert [line["jobs"] for line in on_one_device.events("front")] == [wanted]
    told = run([*FLEET, "status", str(on_one_device.path), "--json"], several.folder)
    assert json.loads(told.output)["search"]["front"] == wanted
    told = run([*FLEET, "status", str(on_one_device.path)], several.folder)
    assert f"front      {', '.join(wanted)}" in told.output
    assert fleet.attach(on_one_device.path).results().best()["name"] == search["best"]


@pytest.mark.slow
def test_three_devices_find_the_same(several: Ensemble, on_one_device: RunFolder) -> None:
    ended = run(several.plain("three", "--trainers", "3", "--policy", "flotilla"), several.folder)
    assert ended.code == 0, ended.output
    assert_same_search(several.left("three"), on_one_device)
    assert decisions(several.left("three")) == decisions(on_one_device)


def test_it_is_played_again_as_it_was(several: Ensemble, on_one_device: RunFolder) -> None:
    told = run([*FLEET, "simulate", "--search", str(on_one_device.path), "--json"], several.folder)
    assert told.code == 0, told.output
    assert json.loads(told.output)["recorded"]["decisions"] == on_one_device.summary["search"]["decisions"]


def test_nobody_trains_trials_beside_it(on_one_device: RunFolder) -> None:
    with pytest.raises(RunError, match="goes by accuracy, loss, and a trial of one's own has one value"):
        fleet.attach(on_one_device.path).ask()
