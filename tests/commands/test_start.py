"""How `python -m fleet` begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["random", "tempfile", "json"])
def test_a_module_in_the_current_folder_hides_none_of_pythons(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    command = [sys.executable, "-m", "fleet", "doctor", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "doctor" in done.stdout, done.stderr
