"""Open files that somebody else may have made: regular files alone, without waiting, and never larger than expected.

A named pipe would hold its reader up for ever, a device may act when it is opened, and a file of gigabytes that is read
whole takes the machine. So every file from outside is opened here. Links are followed: where data lie is their owner's
to say.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

MOST_JSON_BYTES = 24 << 20  # of which Python may make twenty times as many
_PIECE = 1 << 16
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
}


class NotAFile(OSError):
    """What bears the file's name is no regular file; `strerror` says what it is."""

    def __init__(self, path: str | os.PathLike[str], mode: int) -> None:
        kind = _KINDS.get(stat.S_IFMT(mode), "no file")
        super().__init__(errno.EINVAL, f"is {kind} and not a regular file", os.fspath(path))


class TooLarge(OSError):
    """A file is larger than anything that belongs there; `strerror` says how large."""

    def __init__(self, path: str | os.PathLike[str], size: int, most: int) -> None:
        text = f"has {size:,} bytes, and such a file has {most:,} at most"
        super().__init__(errno.EFBIG, text, os.fspath(path))


def open_descriptor(path: str | os.PathLike[str]) -> int:
    """Return a descriptor that reads a regular file; it is the caller's to close.

    Raises:
        NotAFile: it is a pipe, a device, a socket or a folder, or a link to one.
        OSError: it cannot be opened.
    """
    check_is_file(path)  # before it is opened: opening a device may have effects
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise NotAFile(path, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_is_file(path: str | os.PathLike[str]) -> None:
    """Check that a path leads to a regular file: for libraries that open it themselves. Raises as `open_descriptor`."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise NotAFile(path, mode)


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading bytes, buffered. Raises as `open_descriptor`."""
    return os.fdopen(open_descriptor(path), "rb")


def read_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """Return all bytes of a regular file.

    Args:
        most: bytes that such a file can have.

    Raises:
        TooLarge: it has more.
        OSError: as `open_descriptor`.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise TooLarge(path, size, most)
        content = file.read(size)
        while more := file.read(_PIECE):  # files below /proc say that they have none; others grow
            content += more
            if len(content) > most:
                raise TooLarge(path, len(content), most)
        return content


def read_text(path: str | os.PathLike[str], most: int = MOST_JSON_BYTES, errors: str = "strict") -> str:
    """Return a regular file's text (UTF-8). Raises as `read_bytes`, and UnicodeDecodeError."""
    return read_bytes(path, most).decode("utf-8", errors)


def read_json(path: str | os.PathLike[str], most: int = MOST_JSON_BYTES) -> Any:
    """Return what a regular file of JSON holds.

    Raises:
        ValueError: it is no JSON, or nested too deep.
        OSError: as `read_bytes`.
    """
    try:
        return json.loads(read_bytes(path, most))
    except RecursionError:
        raise ValueError(f"{Path(path).name} is nested too deep") from None
