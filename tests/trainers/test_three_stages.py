"""The example that repeats EasyScale's Figure 10, with few steps: losses are those of DDP just where they should be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPS = 5


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    out = tmp_path_factory.mktemp("three-stages")
    command = [sys.executable, str(ROOT / "examples" / "three_stages.py"), "--out", str(out)]
    done = subprocess.run(
        [*command, "--steps", str(STEPS), "--levels", "D1,D1+D2"], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert (out / "three-stages.html").is_file() and "<polyline" in (out / "three-stages.svg").read_text()
    found = json.loads((out / "losses.json").read_text())
    assert found["steps"] == STEPS
    return dict(found["losses"])


@pytest.mark.slow
def test_d1_has_the_losses_of_ddp_until_kinds_are_mixed(losses: dict[str, list[float]]) -> None:
    assert len(losses["D1"]) == 3 * STEPS
    assert losses["D1"][: 2 * STEPS] == losses["DDP-homo"][: 2 * STEPS]
    assert losses["D1"][2 * STEPS :] != losses["DDP-homo"][2 * STEPS :]


@pytest.mark.slow
def test_d1_and_d2_have_the_losses_of_ddp_to_the_end(losses: dict[str, list[float]]) -> None:
    assert losses["D1+D2"] == losses["DDP-heter"]
    assert losses["DDP-heter"] != losses["DDP-homo"]
