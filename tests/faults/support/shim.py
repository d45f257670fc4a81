"""The shim of shim.c: built, told what to do, and asked what it did."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ERRORS = ("EIO", "ENOSPC", "EDQUOT", "ESTALE", "ENOSYS", "EROFS")
STATE_BYTES = 4096
_COUNTS = struct.Struct("QQ")


def build(folder: Path) -> Path | None:
    """Compile it; None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-lpthread"], check=True)
    return library


@dataclass(frozen=True)
class Point:
    """A call of a run that fails.

    Attributes:
        number: which, from 1.
        error: errno's name.
        lasts: each later one fails, too.
        only: a call and a part of a path, such as "write journal"; of these it is the one. Empty: of all.
    """

    number: int
    error: str
    lasts: bool = False
    only: str = ""

    @property
    def said(self) -> str:
        """What the system says of it."""
        return os.strerror(getattr(errno, self.error))

    def __str__(self) -> str:
        return f"{self.only} {self.number}{'+' if self.lasts else ''} {self.error}".strip()


@dataclass(frozen=True)
class Shim:
    """What a run's processes are told, and what they left.

    Args:
        under: the folder that it watches.
        state: its state's file.
    """

    under: Path
    state: Path

    def variables(self, point: Point | None = None, log: Path | None = None, rank: int | None = None) -> dict[str, str]:
        """For a start: which call fails, where all are recorded, of which rank they are counted. Forgets the last."""
        self.state.write_bytes(bytes(STATE_BYTES))
        said = {"SHIM_UNDER": str(self.under), "SHIM_STATE": str(self.state)}
        if point is not None:
            said["SHIM_FAIL"] = f"{point.number} {getattr(errno, point.error)} {int(point.lasts)}"
            said |= {"SHIM_ONLY": point.only} if point.only else {}
        said |= {"SHIM_LOG": str(log)} if log is not None else {}
        return said | ({"SHIM_RANK": str(rank)} if rank is not None else {})

    @property
    def calls(self) -> int:
        """How many were made."""
        return int(_COUNTS.unpack_from(self.state.read_bytes())[0])

    @property
    def failed(self) -> str:
        """The first call that failed: its name and its path; empty if none did."""
        return self.state.read_bytes()[_COUNTS.size :].split(b"\0")[0].decode(errors="replace")


@dataclass(frozen=True)
class Call:
    """A recorded call that was done.

    Attributes:
        kind: create, open, write, truncate, sync, rename, unlink, mkdir or rmdir.
        inode: the file's, or the folder's.
        offset: of a write; the length that a truncate leaves.
        path, to: the file, and its new name.
        data: what was written.
    """

    kind: str
    inode: int
    offset: int
    path: str
    to: str
    data: bytes


def recorded(log: Path) -> Iterator[Call]:
    """The calls of a log, in their order."""
    with log.open("rb") as file:
        while head := file.readline():
            kind, *numbers = head.decode().split()
            inode, offset, length, path, to = map(int, numbers)
            names = file.read(path).decode(), file.read(to).decode()
            yield Call(kind, inode, offset, *names, file.read(length))
