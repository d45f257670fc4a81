"""Sends of small messages, which nobody waits for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.machine.launch import launched as small_messages
from fleet.machine.launch.local_launch import find_mpiexec

PROGRAM = Path(__file__).with_name("programs") / "small_messages.py"
ROOT = PROGRAM.parents[3]
SMALL, LARGE = ("400", "40000"), "1000000"


def complete(folder: Path, how: str, **variables: str) -> list[bool]:
    """Which messages were sent though the receiver did not look."""
    launcher = find_mpiexec()
    if launcher.family != "openmpi":
        pytest.skip("the variables are Open MPI's")
    folder.mkdir()
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = launcher.command(2, [sys.executable, str(PROGRAM), str(folder), how, *SMALL, LARGE])
    environment = {**os.environ, **launcher.environment(), "PYTHONPATH": paths, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: list[bool] = json.loads((folder / "told.json").read_text())
    return found


def test_small_messages_are_sent_before_the_receiver_looks(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py.MPI")
    assert complete(tmp_path / "copied", "copied") == [True, True, False]
    assert complete(tmp_path / "lent", "lent") == [False, False, False], "else this test shows nothing"


def test_what_somebody_has_asked_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"OMPI_MCA_btl_sm_eager_limit": "8192"}
    monkeypatch.setattr(os, "environ", found)
    small_messages.copy_small_messages()
    assert found.pop("OMPI_MCA_btl_sm_eager_limit") == "8192"
    assert found.pop("OMPI_MCA_btl_sm_flags") == "send" and set(found.values()) == {"49152"}
