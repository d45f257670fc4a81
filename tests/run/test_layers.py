"""Who may know whom: the packages' layers, and no cycle among modules while they are imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fleet", "preprocess", "trainers")
MAY_NOT_KNOW = {"preprocess": {"fleet", "trainers"}, "trainers": {"fleet", "preprocess"}}
PURE = {"mpi4py", "torch", "random", "time", "datetime", "os", "pathlib", "io", "threading", "h5py"}


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path = ROOT, packages: tuple[str, ...] = PACKAGES) -> dict[str, Path]:
    """Every module of the packages, by name."""
    return {module_name(path, root): path for package in packages for path in sorted((root / package).rglob("*.py"))}


def imports(path: Path, name: str, known: dict[str, Path], deferred: bool) -> set[str]:
    """What a module imports, by full name.

    Args:
        known: a name imported from a package is a module of it if it is among these.
        deferred: count imports inside functions and under TYPE_CHECKING too; else those alone that run on import.
    """
    found: set[str] = set()
    for node in _statements(ast.parse(path.read_text()), deferred):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, name, path.name == "__init__.py")
            inner = {f"{base}.{alias.name}" for alias in node.names} & known.keys()
            found |= inner | ({base} if len(inner) < len(node.names) else set())
    return found


def _statements(node: ast.AST, deferred: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not deferred and (
            isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or _is_typing(child)
        ):
            continue
        yield child
        yield from _statements(child, deferred)


def _is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _base(node: ast.ImportFrom, name: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    above = name.split(".")[: len(name.split(".")) - node.level + is_package]
    return ".".join([*above, *([node.module] if node.module else [])])


def graph(found: dict[str, Path]) -> dict[str, set[str]]:
    """Module -> the modules among `found` that its import runs; a module's packages are run before it."""
    edges = {}
    for name, path in found.items():
        wanted = imports(path, name, found, deferred=False) & found.keys()
        edges[name] = wanted - {name}
    return edges


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """One cycle, its first module repeated at the end; empty if there is none."""
    done: set[str] = set()

    def search(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return [*trail[trail.index(name) :], name]
        if name in done:
            return []
        for wanted in sorted(edges[name]):
            if found := search(wanted, [*trail, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(edges) if (found := search(name, []))), [])


@pytest.mark.parametrize("package", MAY_NOT_KNOW)
def test_lower_layers_know_neither_fleet_nor_each_other(package: str) -> None:
    known = modules()
    for name, path in known.items():
        if name.split(".")[0] == package:
            tops = {imported.split(".")[0] for imported in imports(path, name, known, deferred=True)}
            assert not tops & MAY_NOT_KNOW[package], f"{name} imports {sorted(tops & MAY_NOT_KNOW[package])}"


def test_schedulers_are_pure() -> None:
    known = modules()
    for name, path in known.items():
        if name.startswith("fleet.scheduling"):
            found = imports(path, name, known, deferred=True)
            outside = {imported for imported in found if imported.split(".")[0] in PURE | {"preprocess", "trainers"}}
            outside |= {i for i in found if i.startswith("fleet.") and not i.startswith("fleet.scheduling")}
            assert not outside, f"{name} imports {sorted(outside)}"


def test_no_module_imports_itself_by_a_detour() -> None:
    found = cycle(graph(modules()))
    assert not found, " -> ".join(found)


def test_a_cycle_would_be_found(tmp_path: Path) -> None:
    package = tmp_path / "ring"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "a": "from ring import b",
        "b": "from . import c",
        "c": "import ring.a",
        "d": "def later():\n    import ring.d2",
        "d2": "from ring.d import later",
    }.items():
        (package / f"{name}.py").write_text(text)
    edges = graph(modules(tmp_path, ("ring",)))
    assert set(cycle(edges)) == {"ring.a", "ring.b", "ring.c"}
    del edges["ring.c"]
    edges["ring.b"].clear()
    assert cycle(edges) == []


def test_a_forbidden_import_inside_a_function_would_be_found(tmp_path: Path) -> None:
    module = tmp_path / "preprocess.py"
    module.write_text("def later():\n    from fleet.commands.cli import app\n    return app\n")
    assert imports(module, "preprocess", {}, deferred=True) == {"fleet.commands.cli"}
    assert imports(module, "preprocess", {}, deferred=False) == set()
