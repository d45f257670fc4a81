"""Files are opened in one room: nobody else opens one for writing, renames or links one, or reads one by its path."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "preprocess" / "files"
WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC", "O_TMPFILE"}
OPENERS = {"open", "File", "FileIO", "ZipFile", "OSFile"}
"""What opens a path with a mode: Python's, HDF5's, zip's, Arrow's."""
WRITERS = {
    "write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "mkfifo", "rename", "tofile", "save_file",
    "copyfile", "copy2", "copytree", "link", "symlink",
}  # fmt: skip
READERS = {"read_text", "read_bytes", "fromfile"}

MAY_WRITE = {
    "fleet/machine/doctor.py:_hdf5": "tries HDF5's locks in a folder of its own",
    "fleet/session/from_python.py:start": "a folder of its own",
    "preprocess/conversion/hdf5_file.py:_hdf5": "HDF5 writes into a file that is open",
    "preprocess/ring/shared_memory.py:_nameless": "shared memory without a name",
}
"""File:function -> why it may."""
KERNEL = "a file of the kernel's"
PACKAGE = "a file of this package"
OWN = "a folder of its own"
MAY_READ = {
    "fleet/machine/binding.py:_twin": KERNEL,
    "fleet/machine/devices.py:_lacks_its_driver": KERNEL,
    "fleet/machine/launch/leftovers.py:_mapped": KERNEL,
    "fleet/machine/launch/leftovers.py:sweep": "locks the folder of shared memory",
    "fleet/machine/devices.py:cores_near": KERNEL,
    "fleet/cluster/batch_systems.py:_bounded": KERNEL,
    "fleet/cluster/batch_script.py:read_site": PACKAGE,
    "fleet/report/rendering.py:_template": PACKAGE,
    "fleet/session/from_python.py:start": OWN,
    "fleet/workers/watchdog.py:state": KERNEL,
    "fleet/journal/lock.py:_boot": KERNEL,
    "preprocess/ring/shared_memory.py:_state_and_start": KERNEL,
    "preprocess/sharing/launch.py:_be_a_copy": "/dev/null",
    "preprocess/sharing/launch.py:_own_folder": KERNEL,
    "preprocess/sources/checked_files.py:_own_memory": KERNEL,
    "trainers/proof/ddp.py:_end_with_parent": "/dev/null",
    "trainers/repeatable/determinism.py:_drivers": KERNEL,
    "trainers/repeatable/instruction_sets.py:_cpu_info": KERNEL,
    "trainers/repeatable/instruction_sets.py:started_with": KERNEL,
}


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Each call, and the function that it stands in."""

    def walk(node: ast.AST, inside: str) -> Iterator[tuple[str, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            within = child.name if named else inside  # type: ignore[attr-defined]
            if isinstance(child, ast.Call):
                yield within, child
            yield from walk(child, within)

    return walk(tree, "")


def called(call: ast.Call) -> str:
    """The last word of what is called."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def mode_of(call: ast.Call) -> str | None:
    """The mode with which something is opened; None: it is no text that stands there."""
    is_method = called(call) == "open" and isinstance(call.func, ast.Attribute)
    given = [word.value for word in call.keywords if word.arg == "mode"] or call.args[0 if is_method else 1 :][:1]
    if not given:
        return "r"
    return given[0].value if isinstance(given[0], ast.Constant) and isinstance(given[0].value, str) else None


def writes(call: ast.Call) -> bool:
    """Whether a call opens a file for writing by its path, or gives a name to one."""
    name, owner = called(call), _owner(call)
    if name == "open" and owner == "os":
        return bool({each.attr for each in ast.walk(call) if isinstance(each, ast.Attribute)} & WRITING_FLAGS)
    if name in OPENERS:
        mode = mode_of(call)
        return mode is not None and bool(set(mode) & set("wax+")) and len(mode) <= 3
    if name == "replace":
        return owner == "os" or ast.unparse(call.func).endswith("path.replace")
    return name in WRITERS and isinstance(call.func, ast.Attribute)


def reads(call: ast.Call) -> bool:
    """Whether a call reads a file by its path."""
    name, owner = called(call), _owner(call)
    if name in READERS:
        return isinstance(call.func, ast.Attribute)
    return name == "open" and (isinstance(call.func, ast.Name) or owner == "os") and not writes(call)


def _owner(call: ast.Call) -> str:
    inner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return inner.id if isinstance(inner, ast.Name) else ""


def found(looked_for: Callable[[ast.Call], bool]) -> dict[str, list[int]]:
    """File:function -> lines."""
    places: dict[str, list[int]] = {}
    for package in ("fleet", "preprocess", "trainers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if ROOM in path.parents:
                continue
            for function, call in calls(ast.parse(path.read_text())):
                if looked_for(call):
                    places.setdefault(f"{path.relative_to(ROOT)}:{function}", []).append(call.lineno)
    return places


@pytest.mark.parametrize("looked_for, allowed", [(writes, MAY_WRITE), (reads, MAY_READ)])
def test_files_are_opened_in_one_room(looked_for: Callable[[ast.Call], bool], allowed: dict[str, str]) -> None:
    places = found(looked_for)
    others = {place: lines for place, lines in places.items() if place not in allowed}
    assert not others, f"use preprocess.files: {others}"
    assert not allowed.keys() - places.keys(), "these no longer do"


@pytest.mark.parametrize(
    "line",
    [
        "open(path, 'w')", "path.open('ab')", "open(path, mode='r+b')", "os.open(path, os.O_RDWR | os.O_CREAT)",
        "h5py.File(path, 'a')", "path.write_text('')", "shutil.copyfile(a, b)", "os.replace(a, b)", "os.link(a, b)",
        "io.FileIO(path, 'w+')", "path.touch()", "zipfile.ZipFile(path, 'w')", "path.replace(other)",
    ],
)  # fmt: skip
def test_what_opens_for_writing_would_be_found(line: str) -> None:
    assert writes(next(calls(ast.parse(line)))[1])
    assert not writes(next(calls(ast.parse("open(path)")))[1])
    assert not writes(next(calls(ast.parse("text.replace('a', 'b')")))[1])


@pytest.mark.parametrize("line", ["open(path)", "path.read_text()", "np.fromfile(path)", "os.open(path, os.O_RDONLY)"])
def test_what_reads_would_be_found(line: str) -> None:
    assert reads(next(calls(ast.parse(line)))[1])
    assert not reads(next(calls(ast.parse("read_text(path)")))[1]), "that is the room's own"
