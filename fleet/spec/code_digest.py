"""Digests of the code that a spec names: of its modules, and of what these import beside them.

Only files count that are the spec's own: in its folder, in the current one, or wherever the module that it names lies,
as long as nobody installed it. Whole files do, so that a comment counts, too.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from preprocess.files.reading import read_bytes

_OURS = ("fleet", "preprocess", "trainers")
_MOST_BYTES = 64 << 20
_MOST_MODULES = 2000

Code = Mapping[str, Mapping[str, str]]
"""`module:Name` -> file, as it is told -> digest of its bytes."""


def code_of(references: Iterable[str], folder: Path, further: Sequence[Path] = ()) -> dict[str, dict[str, str]]:
    """The code that these names lead to; those that lead to nothing of the spec's own are left out.

    Args:
        folder: the spec's, from which files are told.
        further: folders in which modules may lie besides.
    """
    reader = _Reader([folder, *further])
    found = {}
    for reference in sorted(set(references)):
        files = {_told(path, folder): reader.digest(path) for path in reader.closure(reference.partition(":")[0])}
        if files:
            found[reference] = files
    return found


def code_changes(before: Code, now: Code) -> dict[str, set[str]]:
    """What differs between the code of two times, a sentence each -> the names that lead to it."""
    found: dict[str, set[str]] = {}
    for reference in before.keys() & now.keys():
        old, new = before[reference], now[reference]
        for file in dict.fromkeys([*old, *new]):
            if old.get(file) != new.get(file):
                what = "changed" if file in old and file in new else "is new" if file in new else "is no longer used"
                found.setdefault(f"{file} {what}", set()).add(reference)
    return dict(sorted(found.items()))


def _told(path: str, folder: Path) -> str:
    inside = os.path.relpath(path, folder.absolute())
    return path if inside.startswith(os.pardir) else inside


class _Reader:
    """Finds files of modules, each looked into once."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [str(folder.absolute()) for folder in folders]
        self._digests: dict[str, str] = {}
        self._imports: dict[str, list[str]] = {}

    def digest(self, path: str) -> str:
        """Of a file's bytes."""
        if path not in self._digests:
            try:
                content = read_bytes(path, _MOST_BYTES)
            except OSError as error:
                content = str(error.strerror).encode()
            self._digests[path] = hashlib.blake2b(content, digest_size=16).hexdigest()
        return self._digests[path]

    def closure(self, module: str) -> list[str]:
        """The files of a module and of all that it imports beside it."""
        found: dict[str, None] = {}
        waiting = [module]
        seen = {module}
        while waiting and len(seen) < _MOST_MODULES:
            name = waiting.pop()
            for path, package in self._files(name):
                found[path] = None
                for other in self._imported(path, package):
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
        return sorted(found)

    def _files(self, name: str) -> Iterator[tuple[str, str]]:
        """The files that importing a module runs, each with the package that relative imports in it begin in."""
        parts = name.split(".")
        if parts[0] in _OURS or not all(part.isidentifier() for part in parts):
            return
        spec = self._top(parts[0])
        for number in range(1, len(parts) + 1):
            if spec is None:
                return
            named, places = ".".join(parts[:number]), spec.submodule_search_locations
            if spec.origin and spec.has_location:
                yield spec.origin, named if places is not None else named.rpartition(".")[0]
            if number == len(parts) or places is None:
                return
            spec = PathFinder.find_spec(f"{named}.{parts[number]}", list(places))

    def _top(self, name: str) -> ModuleSpec | None:
        """Where a module is found as an import would find it; None: nowhere, or it is installed."""
        try:
            found = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            found = None
        found = found or PathFinder.find_spec(name, self._folders)
        if found is None:
            return None
        places = [found.origin] if found.origin and found.has_location else list(found.submodule_search_locations or ())
        return None if not places or any(map(_is_installed, places)) else found

    def _imported(self, path: str, package: str) -> list[str]:
        """The modules that a file may import, by their full names."""
        if path not in self._imports:
            self._imports[path] = list(_imports(path, package))
        return self._imports[path]


def _imports(path: str, package: str) -> Iterator[str]:
    if not path.endswith(".py"):
        return
    try:
        tree = ast.parse(read_bytes(path, _MOST_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".") if package else []
            above = above[: len(above) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _is_installed(path: str) -> bool:
    libraries = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return path.startswith(libraries) or not {"site-packages", "dist-packages"}.isdisjoint(Path(path).parts)
