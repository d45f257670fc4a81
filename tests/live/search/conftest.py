"""A search of small networks, and what it comes to on one device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live.support.ensembles import Ensemble, RunFolder, pictures, write_ensemble
from tests.live.support.processes import run

SEARCH: dict[str, Any] = {
    "name": "net-{trial}",
    "job": {"model": {"name": "parts:Faulty"}, "stop": {"epochs": 4}},
    "over": {
        "model.arguments.fault": {"choice": ["raise", "nan"]},
        "model.arguments.picture": {"choice": [40, *range(500, 504)]},  # only the first of these exists
        "optimizer.arguments.lr": {"log_uniform": [0.001, 1.0]},
    },
    "metric": "loss",
    "stopping": {"name": "halving", "eta": 2, "rungs": [1, 2, 4]},
    "width": 4,
    "trials": 10,
    "seed": 32,
}
"""Ten trials, of which one goes wrong in its code, and one has no finite loss."""


@pytest.fixture(scope="session")
def searching(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """The search, each trial on one device; each reads its samples itself, so that gates hold the later ones, too."""
    return write_ensemble(
        tmp_path_factory.mktemp("searching"),
        [],
        data={"pictures": {**pictures(), "store": False}},
        measured=False,
        search=SEARCH,
        policy={"name": "local"},
        ensemble=False,
    )


@pytest.fixture(scope="session")
def on_one_device(searching: Ensemble) -> RunFolder:
    """The search on one device: what all others are held against."""
    ended = run(searching.plain("one"), searching.folder)
    assert ended.code == 0, ended.output
    return searching.left("one")
