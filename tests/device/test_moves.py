"""A network that moves from device to device: what goes through the host."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.device.rig import Rig
from tests.device.test_runs import ON_ITS_OWN
from tests.live.support.processes import MPIEXEC, run

RANKS = 3  # two trainers, and the one that joins them
SMALL = 0.02
"""Of the model's bytes: what the workers' own contexts may take, which go over the hosts."""


def moved(rig: Rig, folder: Path, way: str) -> list[dict[str, Any]]:
    """What each rank tells of the move."""
    words = [sys.executable, "-m", "tests.device.programs.moving", str(folder), way]
    ended = run([*MPIEXEC, "-n", str(RANKS), *words], folder, **rig.variables, **ON_ITS_OWN)
    assert ended.code == 0, ended.output
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("way", ["device", pytest.param("host", marks=pytest.mark.slow)])
def test_a_move_between_devices_puts_nothing_of_the_model_through_the_host(rig: Rig, way: str, tmp_path: Path) -> None:
    """Weights and momenta, twice the model's bytes. Over the hosts they show, so the counts would tell of them."""
    told = moved(rig, tmp_path, way)
    size = told[0]["bytes"]
    leaves, comes = (max(each[name] for each in told) for name in ("d2h bytes", "h2d bytes"))
    if way == "device":
        assert leaves < SMALL * size and comes < SMALL * size
    else:
        assert leaves >= 2 * size and comes >= 2 * size
    assert len({json.dumps(each["digests"]) for each in told}) == 1, "all have the same network, then and a step later"
    assert told[0]["digests"][0] != told[0]["digests"][1]
