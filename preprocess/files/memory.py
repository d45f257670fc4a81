"""The memory of its node that this process may still take, and a check that what a file claims to hold fits in.

A file of a kilobyte can claim to hold gigabytes. So before memory is taken for what a file says of itself, the claim is
held against the bytes that the file has, and against a share of the memory that is free.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
READ_MEMORY = "FLEET_READ_MEMORY"
"""The variable that says how many bytes one thing in a file may take at once, such as 8G; no other bound holds then."""
SMALL_BYTES = 256 << 20  # that any file may take
SHARE = 0.25  # of the free memory, that one thing in a file may take
EXPANSION = 100  # that a packed file may grow to, times its size, above SMALL_BYTES
BLOCK_BYTES = 512  # of `st_blocks`, which tell what a file has on the disk: a sparse one claims more
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class NeedsTooMuchMemory(OSError):
    """What a file claims to hold is more than it can hold, or more than may be taken; `strerror` says how much."""

    def __init__(self, path: str | os.PathLike[str], text: str) -> None:
        super().__init__(errno.ENOMEM, text, os.fspath(path))


def check_claim(path: str | os.PathLike[str], claimed: int, what: str = "", stored: int | None = None) -> None:
    """Check what a file says that it holds, before memory is taken for it.

    Args:
        path: the file, for the error.
        claimed: bytes that will be taken at once.
        what: which part of the file, for the error, such as "inputs".
        stored: bytes that this part has in the file, packed or not; None: not known.

    Raises:
        NeedsTooMuchMemory: it is more than READ_MEMORY says; or, where that says nothing, more than SMALL_BYTES and
            also more than SHARE of the free memory, or than EXPANSION times what is stored.
    """
    if claimed <= SMALL_BYTES and READ_MEMORY not in os.environ:
        return
    subject = f"{what} takes" if what else "takes"
    more = f"; where that is right, set {READ_MEMORY}={_rounded_up(claimed)}"
    told = os.environ.get(READ_MEMORY)
    if told is not None:
        most = bytes_of(told)
        if claimed > most:
            text = f"{subject} {human(claimed)} of memory, and {READ_MEMORY} allows {human(most)}"
            raise NeedsTooMuchMemory(path, f"{text}{more}")
        return
    if stored is not None and claimed > EXPANSION * stored:
        text = f"{subject} {human(claimed)} of memory and has {human(stored)} in the file, as no sound file does"
        raise NeedsTooMuchMemory(path, f"{text}{more}")
    free = free_memory()
    if claimed > SHARE * free:
        text = f"{subject} {human(claimed)} of memory, more than a quarter of the {human(free)} that are free"
        raise NeedsTooMuchMemory(path, f"{text}{more}")


def bytes_of(text: str) -> int:
    """Return the bytes that a text such as 512M or 8G says. ValueError: it says none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError(f"{READ_MEMORY}={text}: write a number of bytes, such as 512M or 8G")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def human(size: int) -> str:
    """Return bytes for people: 1.5 GB; units of 1024."""
    value, unit = float(size), "bytes"
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if value < 1024 or unit == "TB":
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:.1f} {unit}"


def _rounded_up(size: int) -> str:
    return f"{math.ceil(size / _UNITS['M'])}M" if size < _UNITS["G"] else f"{math.ceil(size / _UNITS['G'])}G"


@dataclass(frozen=True)
class GroupMemory:
    """The memory of a control group (a container, a batch job).

    Attributes:
        limit: bytes that all its processes may take together.
        used: bytes that they take, but for files in the page cache that the system can drop.
    """

    limit: int
    used: int


def free_memory(groups: Path = GROUPS, own: Path = OWN) -> int:
    """Return bytes.

    Args:
        groups: where the control groups are mounted.
        own: the file that names this process's.
    """
    left = [max(group.limit - group.used, 0) for group in group_memories(groups, own)]
    return min([psutil.virtual_memory().available, *left])


def memory_to_keep_samples(limit: float = math.inf) -> int:
    """Return the bytes that samples may take on a node where nobody said how many: half of what is free, or of `limit`.

    The rest is for others, and for the page cache.
    """
    return int(min(free_memory(), limit) / 2)


def group_memories(groups: Path = GROUPS, own: Path = OWN) -> Iterator[GroupMemory]:
    """Yield what holds for this process's control groups and for those around them, of either version."""
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _upward(groups, path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
                yield from _upward(groups / "memory", path, *names)


def _upward(root: Path, path: str, limit: str, usage: str, droppable: str) -> Iterator[GroupMemory]:
    """A container sees its own group as the root, whatever it is called outside."""
    inner = root / path.lstrip("/")
    for folder in (inner, *inner.parents):
        with suppress(OSError, ValueError):  # no such file, or "max": no limit
            most = int((folder / limit).read_text())
            yield GroupMemory(most, _used(folder, usage, droppable))
        if folder == root:
            return


def _used(folder: Path, usage: str, droppable: str) -> int:
    """0 where the group does not tell."""
    with suppress(OSError, ValueError):
        used = int((folder / usage).read_text())
        for line in (folder / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == droppable:
                return max(used - int(value), 0)
        return used
    return 0
