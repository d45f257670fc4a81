"""`fleet submit --profile F --array K` on a real Slurm: each task measures its part, and F is the whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.virtual_slurm import VirtualSlurm
from tests.live.support.ensembles import cnn, counting, mlp, write_ensemble
from tests.live.support.processes import FLEET, run

Submit = Callable[..., Any]
PARTS = 2


@pytest.mark.slow  # tests/live/test_profile.py joins parts, and tests/submit reads the array's script
def test_the_parts_are_one_profile(submit: Submit, slurm: VirtualSlurm, tmp_path: Path) -> None:
    jobs = {job["name"]: job for job in (mlp(), cnn(), counting())}
    ensemble = write_ensemble(tmp_path, list(jobs.values()), measured=False, profile={"batches": 4, "timed": 2})
    rates = tmp_path / "rates.json"
    given = submit(1, "--profile", str(rates), "--array", str(PARTS), of=ensemble)
    for part in range(1, PARTS + 1):
        slurm.wait(f"{given.job}_{part}", "COMPLETED")
        written = json.loads((tmp_path / f"rates.{part}-of-{PARTS}.json").read_text())
        assert set(written["names"].values()) == set(list(jobs)[part - 1 :: PARTS])
        assert all("1" in curve for curve in written["rates"].values())

    use = ("--set", f"profile.file={rates}")
    planned = run([*FLEET, "plan", str(ensemble.spec), *use, "--json"], tmp_path)
    assert planned.code == 0, planned.output
    assert json.loads(planned.output)["rates"] == ["profile"], "none is assumed"
