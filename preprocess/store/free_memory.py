"""How much memory of its node this process may still take: what is free, or what its control groups leave."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


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
