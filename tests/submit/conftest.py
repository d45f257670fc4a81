"""Batch scripts as users write and submit them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.support.ensembles import Ensemble, mlp, write_ensemble
from tests.live.support.processes import MPIEXEC, Ended, run
from tests.submit.support.programs import lay_out
from tests.warm.starting import nursery, started_cold

__all__ = ["nursery", "started_cold"]

Submit = Callable[..., Ended]


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """One network, two epochs."""
    return write_ensemble(tmp_path_factory.mktemp("submitted"), [mlp()])


@pytest.fixture
def submit(ensemble: Ensemble) -> Submit:
    """Call `fleet submit SPEC`, with these options and variables, in the ensemble's folder."""

    def call(*options: str, spec: Path = ensemble.spec, **variables: str) -> Ended:
        command = [sys.executable, "-m", "fleet", "submit", str(spec), *options]
        return run(command, ensemble.folder, **variables)

    return call


@pytest.fixture
def stand_ins(tmp_path: Path) -> dict[str, str]:
    """Variables with which the programs of LSF, PBS and Flux are found; nodes of 4 GPUs and 40 cores."""
    folder = tmp_path / "bin"
    lay_out(folder)
    (folder / "fleet").write_text(f'#!/bin/sh\nexec {sys.executable} -m fleet "$@"\n')
    (folder / "fleet").chmod(0o755)
    return {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "STAND_IN_NODE": "4,40",
        "STAND_IN_MPIEXEC": " ".join(MPIEXEC),
        "STAND_IN_LOG": str(tmp_path / "calls.jsonl"),
    }


@pytest.fixture(scope="session")
def shellcheck() -> Callable[[Path], None]:
    """Let bash, and shellcheck where it is, look at a script."""

    def look(script: Path) -> None:
        for program in (["bash", "-n"], ["shellcheck", "--severity=info", "--exclude=SC1091"]):
            if shutil.which(program[0]):
                done = subprocess.run([*program, str(script)], capture_output=True, text=True)
                assert done.returncode == 0, done.stdout + done.stderr

    return look
