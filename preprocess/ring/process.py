"""Whether a process of this node still lives."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def own_identity() -> tuple[int, int]:
    """Return (process id, start time in clock ticks since boot), which together name this process for good."""
    pid = os.getpid()
    return pid, (_state_and_start(pid) or ("R", 0))[1]


def is_alive(pid: int, started: int) -> bool:
    """Say whether the process of this identity runs; a zombie does not, nor another process with its id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it lives, and is another user's
    found = _state_and_start(pid)
    return found is None or (found[0] not in "ZX" and found[1] == started)


def namespace() -> int:
    """Return a number that is equal for processes that can see each other's ids (0 where there are no namespaces)."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """Return (state letter, start time) from Linux's process table, or None where it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    values = text.rpartition(")")[2].split()  # the name before it may hold anything
    return values[0], int(values[19])


def use_one_thread() -> None:
    """Let OpenCV and torch compute in the calling thread alone: preprocessors are many, one a core.

    A forked process needs it: it has none of the threads that the pools of these libraries still count on.
    """
    if find_spec("cv2") is not None:
        import cv2

        cv2.setNumThreads(0)  # with 1 it would end its pool, and wait for ever for threads that no fork copies
    if "torch" in sys.modules:  # only those who need it pay for the import
        sys.modules["torch"].set_num_threads(1)
