"""Folders for the wheel's tests, and commands that run there without this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LEFT_OUT = (".git", ".venv", "build", "dist", "runs", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
MINE = ("PYTHON", "VIRTUAL_ENV", "OMPI_", "PMIX_", "PRTE_", "PMI_", "FLEET_", "OPAL_", "LD_LIBRARY_PATH")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}


def copied_checkout(folder: Path) -> Path:
    """A copy of the checkout without what tools have left there."""
    return Path(shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT)))


def environment(first: Path, offline: bool = False) -> dict[str, str]:
    """The environment of a stranger whose PATH begins with `first`; offline: one whose pip knows of no index either."""
    mine = MINE + (("PIP_",) if offline else ())
    left = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    only = {"PIP_CONFIG_FILE": os.devnull} if offline else {}
    return {**left, **AS_ROOT, **only, "PATH": f"{first}{os.pathsep}{left['PATH']}"}


def output_of(script: str, folder: Path, variables: dict[str, str], seconds: float = 800.0) -> str:
    """What bash prints of a script that has to end with code 0."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
    )  # fmt: skip
    assert done.returncode == 0, f"exit code {done.returncode} of\n{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout
