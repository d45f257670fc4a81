"""fleet.search decides: it neither talks, waits, reads a clock nor draws from a generator that is not its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fleet.search

FOLDER = Path(fleet.search.__file__).parent
MODULES = sorted(FOLDER.rglob("*.py"))
UNWANTED = {"mpi4py", "torch", "random", "time", "datetime", "io", "threading", "h5py", "os", "socket", "subprocess"}
ROOMS = ("fleet.search", "fleet.spec", "fleet.journal.events")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_imports_are_pure(path: Path) -> None:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    assert not {name.split(".")[0] for name in names} & UNWANTED
    assert all(name.startswith(ROOMS) for name in names if name.split(".")[0] in ("fleet", "preprocess", "trainers"))
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"open", "print", "input", "eval", "exec", "__import__", "hash", "id"}


def test_loading_the_search_loads_what_is_heavy_only_when_it_is_used() -> None:
    unwanted = {"torch", "mpi4py", "optuna", "scipy", "cmaes", "preprocess.samples", "trainers"}
    program = f"import sys, fleet.search.of_spec; print(*{unwanted} & set(sys.modules))"
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=FOLDER.parents[1]
    )
    assert (told.returncode, told.stdout.strip(), told.stderr) == (0, "", "")
