"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """As `write_parts`, of one text."""
    write_parts(path, (text,))


def write_new(path: Path, text: str, mode: int) -> bool:
    """As `write_whole`, of a file with that mode, unless there is one of that name; returns whether it was written."""

    def name(temporary: Path) -> None:
        temporary.chmod(mode)
        os.link(temporary, path)

    try:
        _write(path, (text,), name)
    except FileExistsError:
        return False
    return True


def write_parts(path: Path, parts: Iterable[str]) -> None:
    """Write texts (UTF-8) one after another to `path`: temporary name, fsync, rename, fsync of the directory.

    Raises:
        OSError: if it cannot be written; an earlier file of that name then stays as it was.
    """
    _write(path, parts, lambda temporary: os.replace(temporary, path))


def _write(path: Path, parts: Iterable[str], name: Callable[[Path], object]) -> None:
    """`name` gives the file, whole, its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        name(temporary)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it; each is on the disk when this returns."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in reversed(new):
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder outlast a power cut."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
