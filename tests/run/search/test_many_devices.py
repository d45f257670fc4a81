"""A search is the same on one rehearsed device and on sixty-four, whatever the policy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.run.search.test_searching_runs import decisions
from tests.run.support.ensembles import Ensemble, RunFolder, mlp, write_ensemble
from tests.run.support.processes import run

SEARCH: dict[str, Any] = {
    "name": "net-{trial}",
    "job": {"model": mlp()["model"], "stop": {"epochs": 4}},
    "over": {"optimizer.arguments.lr": {"log_uniform": [0.001, 1.0]}},
    "metric": "accuracy",
    "stopping": {"name": "halving", "eta": 2, "rungs": [1, 2, 4]},
    "width": 16,
    "trials": 24,
}
SECONDS = 500.0  # of sixty-five ranks on a few cores


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """The search, sixteen trials at a time of four virtual workers each."""
    return write_ensemble(
        tmp_path_factory.mktemp("wide"), [], measured=False, search=SEARCH, ensemble=False,
        rehearse={"time_scale": 0.01},
    )  # fmt: skip


def rehearsed(wide: Ensemble, policy: str, cluster: str) -> RunFolder:
    out = f"{policy}-{cluster}"
    options = ("--rehearse", "--cluster", cluster, "--policy", policy, "--set", "defaults.virtual_workers=4")
    ended = run(wide.plain(out, *options), wide.folder, SECONDS)
    assert ended.code == 0, ended.output
    return wide.left(out)


@pytest.fixture(scope="module")
def on_one(wide: Ensemble) -> RunFolder:
    """The search on one device."""
    return rehearsed(wide, "flotilla", "1")


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fifo", "flotilla", "malleable"])
def test_sixty_four_devices_decide_as_one_does(wide: Ensemble, on_one: RunFolder, policy: str) -> None:
    folder = rehearsed(wide, policy, "8x8")
    held = [devices for round_ in folder.summary["rounds"] for devices in round_["allocation"].values()]
    assert {device // 8 for devices in held for device in devices} == set(range(8))
    assert folder.summary["search"] == on_one.summary["search"]
    assert decisions(folder) == decisions(on_one)
    assert len(folder.summary["search"]["trials"]) == SEARCH["trials"]
