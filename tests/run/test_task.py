"""A user's own task class beside a network of the spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trainers
from tests.run.support.ensembles import STEPS, mlp, write_ensemble
from tests.run.support.processes import run


@pytest.mark.slow
def test_task_with_its_own_data_trains_beside_a_model(tmp_path: Path) -> None:
    plain: dict[str, Any] = {
        "name": "plain",
        "task": {"name": "parts:Plain"},
        "data": None,
        "optimizer": None,
        "metrics": [],
    }
    ensemble = write_ensemble(tmp_path, [mlp(), plain])
    ended = run(ensemble.plain("run", "--trainers", "2"), tmp_path)
    assert ended.code == 0, ended.output
    folder = ensemble.left("run")
    for job in ("mlp", "plain"):
        assert folder.summary["jobs"][job]["status"] == "done"
        assert trainers.read(folder.summary["jobs"][job]["checkpoint"]).steps == 2 * STEPS
    first, last = (event["metrics"] for event in folder.events("epoch", "plain"))
    assert last["loss"] < first["loss"], "it does not learn"
    # Once one is done the other may be formed anew, an epoch further on.
    assert len({event["stream"].partition("/epoch")[0] for event in folder.events("started")}) == 2
