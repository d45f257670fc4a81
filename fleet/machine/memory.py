"""How much memory of its node a process may use."""

from __future__ import annotations

from pathlib import Path

import psutil

from preprocess.files.memory import GROUPS, OWN, group_memories


def usable_memory(groups: Path = GROUPS, own: Path = OWN) -> int:
    """Return bytes: all of the node's, or what the control groups of this process (a container, a batch job) allow.

    Args:
        groups: where the control groups are mounted.
        own: the file that names this process's.
    """
    return min([psutil.virtual_memory().total, *(group.limit for group in group_memories(groups, own))])
