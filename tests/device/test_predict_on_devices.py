"""`fleet predict` on the rig, each rank forbidden every device but its own: the CPU's bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.device.rig import Rig
from tests.live.support.ensembles import mlp, write_ensemble
from tests.live.support.processes import FLEET, run

ON_ITS_OWN = {"RIG_FORBID": "others", "RIG_GENERATOR": "host", "RIG_SCHEDULE": "both-late"}


def test_each_rank_predicts_on_a_device_of_its_own(rig: Rig, tmp_path: Path) -> None:
    resources = {"trainers": 1, "device": "cpu", "ring_samples": 128, "slot_samples": 8}
    ensemble = write_ensemble(tmp_path, [mlp("one"), mlp("other", seed=4)], resources=resources)
    ended = run(ensemble.plain("out"), tmp_path, **rig.variables)
    assert ended.code == 0, ended.output
    words = [*FLEET, "predict", str(tmp_path / "out"), "--soup", "greedy", "--temperature", "--json"]

    def told(*options: str) -> dict[str, Any]:
        done = run([*words, *options], tmp_path, **rig.variables, **ON_ITS_OWN)
        assert done.code == 0, done.output
        return {key: value for key, value in json.loads(done.output).items() if key != "seconds"}

    alone = told()
    assert told("--device", "rig", "--ranks", "2") == told("--device", "rig") == alone and "soup" in alone
