"""fleet.scheduling knows plain data alone: nothing that talks, waits, draws or reads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fleet.scheduling

FOLDER = Path(fleet.scheduling.__file__).parent
MODULES = sorted(FOLDER.rglob("*.py"))
ALLOWED = {
    *("__future__", "abc", "bisect", "collections", "copy", "dataclasses", "difflib", "functools", "hashlib", "heapq"),
    *("inspect", "itertools", "math", "numpy", "scipy", "statistics", "types", "typing"),
}
FINDS_CLASSES = {"__init__.py", "policies/__init__.py"}
"""Policies are imported by their names there, which is all that these two do beside plain data."""


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_imports_are_pure(path: Path) -> None:
    tree = ast.parse(path.read_text())
    outside = {name for name in imported(tree) if not name.startswith("fleet.scheduling")}
    assert {name.split(".")[0] for name in outside} <= ALLOWED | (
        {"importlib"} if str(path.relative_to(FOLDER)) in FINDS_CLASSES else set()
    )
    assert not outside & {"numpy.random"}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not attributes & {"random", "environ", "now", "today"}
    assert not calls & {"open", "print", "input", "eval", "exec", "__import__"}


def test_there_are_modules_to_check() -> None:
    assert {"policy.py", "rates.py", "placement.py"} <= {path.name for path in MODULES}


def test_loading_the_policies_loads_neither_torch_nor_mpi() -> None:
    unwanted = {"torch", "mpi4py", "preprocess", "trainers"}
    program = f"import sys, fleet.scheduling.policies; print(*{unwanted} & set(sys.modules))"
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=FOLDER.parents[1]
    )
    assert (told.returncode, told.stdout.strip(), told.stderr) == (0, "", "")
