"""Runs over MPICH, whose kin Cray's and Intel's MPI are, in place of Open MPI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, RunFolder
from tests.live.support.processes import run, started

WHEEL = "mpich==5.0.2"
JOBS = ("mlp", "cnn", "count")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the wheel is Linux's")


@pytest.fixture(scope="module")
def mpich(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables that make fleet and mpi4py use it."""
    folder = tmp_path_factory.mktemp("mpich")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed"]
    done = subprocess.run([*pip, "--prefix", str(folder), WHEEL], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"{WHEEL} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return {
        "FLEET_MPI": "system",
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "MPI4PY_LIBMPI": str(folder / "lib" / "libmpi.so.12"),
    }


@pytest.mark.slow
def test_its_runs_have_the_same_bits(mpich: dict[str, str], small: Ensemble, alone: RunFolder) -> None:
    ended = run(small.plain("mpich", "--trainers", "2", "--preprocessors", "2"), small.folder, **mpich)
    assert ended.code == 0, ended.output
    assert_same_bits(final_states(small.left("mpich"), JOBS), final_states(alone, JOBS))


@pytest.mark.slow
def test_under_its_own_launcher_too(mpich: dict[str, str], small: Ensemble, alone: RunFolder) -> None:
    launcher = Path(mpich["PATH"].partition(os.pathsep)[0]) / "mpiexec"
    command = [str(launcher), "-n", "4", *small.plain("hydra", "--preprocessors", "1")]
    ended = run(command, small.folder, **mpich)
    assert ended.code == 0, ended.output
    assert_same_bits(final_states(small.left("hydra"), JOBS), final_states(alone, JOBS))


@pytest.mark.slow
def test_all_ranks_are_started_again_when_one_is_lost(mpich: dict[str, str], small: Ensemble, alone: RunFolder) -> None:
    folder = small.left("struck")
    with started(small.plain("struck", "--trainers", "3"), small.folder, **mpich) as running:
        running.wait_for(lambda: bool(folder.events("checkpoint")), "a checkpoint")
        running.kill_rank(2)
        ended = running.finish()
    assert ended.code == 0 and "all ranks are started again" in ended.output, ended.output
    assert len(folder.events("session")) == 2
    assert_same_bits(final_states(folder, JOBS), final_states(alone, JOBS))
