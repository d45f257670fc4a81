"""Who may know whom: the order of the rooms, and no circle of files, imports inside functions counted too."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("fleet", "preprocess", "trainers")
MAY_NOT_KNOW = {"preprocess": {"fleet", "trainers"}, "trainers": {"fleet", "preprocess"}}
FOR_ALL = "preprocess.files"  # how files are opened and written, which is one for all
PURE = {"mpi4py", "torch", "random", "time", "datetime", "os", "pathlib", "io", "threading", "h5py"}

Graph = dict[str, set[str]]
# From the top down: a room knows only rooms that come after it.
ROOMS = {
    "fleet": (
        "commands", "session", "models", "workers", "simulator", "report", "search", "coordination", "machine",
        "cluster", "spec", "profiling", "journal", "scheduling",
    ),
    "fleet.scheduling": (
        "policies", "variable_batch", "elasticflow", "reservations", "easyscale", "placing", "model",
    ),
    "preprocess": (
        "sharing", "making", "store", "conversion", "ring", "sources", "transforms", "samples", "files",
    ),
    "trainers": (
        "proof", "job", "step", "task", "reduce", "repeatable", "messages", "state", "device", "zoo",
    ),
}  # fmt: skip
LOOSE: dict[str, set[str]] = {"fleet": {"__main__"}, "fleet.scheduling": set(), "preprocess": set(), "trainers": set()}
"""What may lie beside the rooms of a house; its own front door may always."""


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path = ROOT, packages: tuple[str, ...] = PACKAGES) -> dict[str, Path]:
    """Every module of the packages, by name."""
    return {module_name(path, root): path for package in packages for path in sorted((root / package).rglob("*.py"))}


def imports(path: Path, name: str, known: Mapping[str, Path]) -> set[str]:
    """What a module imports anywhere, by full name: in functions and under TYPE_CHECKING too.

    Args:
        known: a name imported from a package is a module of it if it is among these.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, name, path.name == "__init__.py")
            inner = {f"{base}.{alias.name}" for alias in node.names} & known.keys()
            found |= inner | ({base} if len(inner) < len(node.names) else set())
    return found


def _base(node: ast.ImportFrom, name: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    above = name.split(".")[: len(name.split(".")) - node.level + is_package]
    return ".".join([*above, *([node.module] if node.module else [])])


def graph(found: Mapping[str, Path]) -> Graph:
    """Module -> the modules among `found` that it imports."""
    return {name: (imports(path, name, found) & found.keys()) - {name} for name, path in found.items()}


def circles(edges: Graph) -> set[frozenset[str]]:
    """Sets of modules that reach each other."""
    ahead = {name: _reached(name, edges) for name in edges}
    return {frozenset(other for other in ahead[name] if name in ahead[other]) for name in edges if name in ahead[name]}


def _reached(start: str, edges: Graph) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = edges[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def room_of(name: str, house: str) -> str | None:
    """The room of `house` that a module stands in; None if it is outside, or the front door or a loose file."""
    rest = name.removeprefix(f"{house}.")
    room = rest.split(".")[0]
    return room if rest != name and (ROOT / house.replace(".", "/") / room).is_dir() else None


def neighbours(edges: Graph, folder: str) -> Graph:
    """What lies in a folder, rooms and loose files -> what else in it that imports; its front door is outside."""
    found: Graph = {}
    for name, wanted in edges.items():
        if name.startswith(f"{folder}."):
            inside = {other[len(folder) + 1 :].split(".")[0] for other in wanted if other.startswith(f"{folder}.")}
            here = name[len(folder) + 1 :].split(".")[0]
            found.setdefault(here, set()).update(inside - {here})
    return found


def folders(known: Mapping[str, Path]) -> list[str]:
    """All packages of the house that have rooms."""
    packages = {name for name, path in known.items() if path.name == "__init__.py"}
    return sorted({name.rpartition(".")[0] for name in packages if "." in name})


def upward(edges: Graph, house: str, rooms: Sequence[str]) -> list[str]:
    """Imports from one room of a house into another that does not come after it."""
    found = []
    for name, wanted in edges.items():
        for other in wanted:
            here, there = room_of(name, house), room_of(other, house)
            if here and there and rooms.index(there) < rooms.index(here):
                found.append(f"{name} imports {other}")
    return sorted(found)


@pytest.fixture(scope="module")
def known() -> dict[str, Path]:
    return modules()


@pytest.fixture(scope="module")
def edges(known: dict[str, Path]) -> Graph:
    return graph(known)


@pytest.mark.parametrize("package", MAY_NOT_KNOW)
def test_lower_layers_know_neither_fleet_nor_each_other(package: str, known: dict[str, Path]) -> None:
    own = [name for name in known if name.split(".")[0] == package]
    assert own, f"there is no file of {package}"
    for name in own:
        found = {each for each in imports(known[name], name, known) if not each.startswith(FOR_ALL)}
        tops = {imported.split(".")[0] for imported in found}
        assert not tops & MAY_NOT_KNOW[package], f"{name} imports {sorted(tops & MAY_NOT_KNOW[package])}"


def test_schedulers_are_pure(known: dict[str, Path]) -> None:
    own = [name for name in known if name.startswith("fleet.scheduling")]
    assert own, "there is no file of fleet.scheduling"
    for name in own:
        found = imports(known[name], name, known)
        outside = {imported for imported in found if imported.split(".")[0] in PURE | {"preprocess", "trainers"}}
        outside |= {i for i in found if i.startswith("fleet.") and not i.startswith("fleet.scheduling")}
        assert not outside, f"{name} imports {sorted(outside)}"


def test_no_files_import_each_other(edges: Graph) -> None:
    assert not [sorted(circle) for circle in circles(edges)]


@pytest.mark.parametrize("house", ROOMS)
def test_rooms_know_only_those_below(house: str, edges: Graph) -> None:
    assert {room for name in edges if (room := room_of(name, house))} == set(ROOMS[house]), "each room has its place"
    assert not upward(edges, house, ROOMS[house])


@pytest.mark.parametrize("folder", folders(modules()))
def test_no_rooms_of_a_folder_know_each_other(folder: str, edges: Graph) -> None:
    """Nothing in a folder, be it a room in it or a file beside its rooms, comes back to itself by its neighbours."""
    inside = neighbours(edges, folder)
    assert inside and not [sorted(circle) for circle in circles(inside)]


@pytest.mark.parametrize("house", ROOMS)
def test_files_lie_in_rooms(house: str) -> None:
    loose = {path.stem for path in (ROOT / house.replace(".", "/")).glob("*.py")}
    assert loose - {"__init__"} <= LOOSE[house]


def test_a_circle_would_be_found(tmp_path: Path) -> None:
    package = tmp_path / "ring"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "a": "from ring import b",
        "b": "def later():\n    from . import c",
        "c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ring.a",
        "d": "import ring.a",
    }.items():
        (package / f"{name}.py").write_text(text)
    edges = graph(modules(tmp_path, ("ring",)))
    assert circles(edges) == {frozenset({"ring.a", "ring.b", "ring.c"})}
    edges["ring.b"].clear()
    assert circles(edges) == set()


def test_rooms_that_know_each_other_would_be_found() -> None:
    edges: Graph = {
        "a.one.x": {"a.two.y"},
        "a.two.y": set(),
        "a.two.z": {"a.one.w"},
        "a.one.w": set(),
        "a": {"a.one.x"},
    }
    assert not circles(edges), "no files do"
    assert circles(neighbours(edges, "a")) == {frozenset({"one", "two"})}
    assert neighbours(edges, "a") == {"one": {"two"}, "two": {"one"}}


def test_an_import_upwards_would_be_found() -> None:
    edges = {
        "fleet.machine.a": {"fleet.session.b", "fleet.scheduling.c"},
        "fleet.session.b": set(),
        "fleet.scheduling.c": set(),
    }
    assert upward(edges, "fleet", ROOMS["fleet"]) == ["fleet.machine.a imports fleet.session.b"]
    assert not upward(edges, "preprocess", ROOMS["preprocess"])


def test_a_forbidden_import_inside_a_function_would_be_found(tmp_path: Path) -> None:
    module = tmp_path / "preprocess.py"
    module.write_text("def later():\n    from fleet.commands.cli import app\n    return app\n")
    assert imports(module, "preprocess", {}) == {"fleet.commands.cli"}
