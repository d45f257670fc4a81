"""Files are opened in one room: nobody else opens one for writing, renames or links one, or reads one by its path."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "preprocess" / "files"
WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC", "O_TMPFILE"}
OPENERS = {"open", "File", "FileIO", "ZipFile", "OSFile"}
"""What opens a path with a mode: Python's, HDF5's, zip's, Arrow's."""
WRITERS = {
    "write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "mkfifo", "rename", "save", "savez", "tofile",
    "save_file", "copyfile", "copy2", "copytree", "move", "link", "symlink",
}  # fmt: skip
READERS = {"read_text", "read_bytes", "fromfile", "memmap"}

MAY_WRITE: dict[str, str] = {}
"""File:function -> why it may."""
MAY_READ: dict[str, str] = {}


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
    """The mode with which something is opened: its second argument, or that of the name; None: that is no text."""
    given = [word.value for word in call.keywords if word.arg == "mode"] or call.args[1:2]
    if not given:
        return "r"
    return given[0].value if isinstance(given[0], ast.Constant) and isinstance(given[0].value, str) else None


def writes(call: ast.Call) -> bool:
    name, owner = called(call), _owner(call)
    if name in OPENERS and not (name == "open" and owner == "os"):
        mode = mode_of(call)
        return mode is not None and bool(set(mode) & set("wax+")) and len(mode) <= 3
    if name == "open" and owner == "os":
        return bool({each.attr for each in ast.walk(call) if isinstance(each, ast.Attribute)} & WRITING_FLAGS)
    if name == "replace":
        return owner == "os" or (len(call.args) == 1 and not call.keywords and isinstance(call.func, ast.Attribute))
    return name in WRITERS and isinstance(call.func, ast.Attribute)


def reads(call: ast.Call) -> bool:
    name, owner = called(call), _owner(call)
    if name in READERS:
        return True
    if name == "open":
        plain = isinstance(call.func, ast.Name)
        return (plain or owner == "os") and not writes(call)
    return name == "load" and owner in ("np", "numpy")


def _owner(call: ast.Call) -> str:
    inner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return inner.id if isinstance(inner, ast.Name) else ""


def found(looked_for: object) -> dict[str, list[int]]:
    """File:function -> lines."""
    places: dict[str, list[int]] = {}
    for package in ("fleet", "preprocess", "trainers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if ROOM in path.parents:
                continue
            for function, call in calls(ast.parse(path.read_text())):
                if looked_for(call):  # type: ignore[operator]
                    places.setdefault(f"{path.relative_to(ROOT)}:{function}", []).append(call.lineno)
    return places


if __name__ == "__main__":
    for kind in (writes, reads):
        print(kind.__name__)
        for place, lines in found(kind).items():
            print("   ", place, lines)
