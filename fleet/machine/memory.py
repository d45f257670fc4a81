"""How much memory of its node a process may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil


def node_memory(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Return bytes: all of the node's, or what the control groups of this process (a container, a batch job) allow.

    Args:
        groups: where the control groups are mounted.
        own: the file that names this process's.
    """
    return min([psutil.virtual_memory().total, *_limits(groups, own)])


def _limits(groups: Path, own: Path) -> Iterator[int]:
    """Yield the limits of this process's control groups and of those around them, of either version."""
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _upward(groups, path, "memory.max")
            elif "memory" in controllers.split(","):
                yield from _upward(groups / "memory", path, "memory.limit_in_bytes")


def _upward(root: Path, path: str, name: str) -> Iterator[int]:
    """A container sees its own group as the root, whatever it is called outside."""
    inner = root / path.lstrip("/")
    for folder in (inner, *inner.parents):
        with suppress(OSError, ValueError):  # no such file, or "max": no limit
            yield int((folder / name).read_text())
        if folder == root:
            return
