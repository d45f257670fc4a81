"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write one text, as `write_parts` does."""
    write_parts(path, (text,))


def write_parts(path: Path, parts: Iterable[str]) -> None:
    """Write texts (UTF-8) one after another to `path`: temporary name, fsync, rename, fsync of the directory.

    Raises:
        OSError: if it cannot be written; an earlier file of that name then stays as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with naming(path):
            with open(temporary, "w", encoding="utf-8", errors="replace", newline="") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # what went wrong first is what counts
            temporary.unlink()
        raise
    sync_folder(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the system name the file, which it does not where it comes from a write or a sync."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            error.filename, error.filename2 = str(path), None
        raise


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it; each is on the disk when this returns.

    Checkpoints have a copy (`trainers.state.checkpoint`), which cannot know this one; theirs would bring torch here.
    """
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in reversed(new):
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder outlast a power cut."""
    with naming(folder):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
