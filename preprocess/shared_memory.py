"""One stretch of memory that all processes of a node share."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from preprocess.errors import SharedMemoryError
from preprocess.layout import Array
from preprocess.process import namespace

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["SharedMemory", "forked_memory", "node_memory", "shared_memory_available", "window_bytes"]

_PAGE = 4096


class SharedMemory:
    """Shared bytes, zeroed.

    Attributes:
        bytes: the memory, uint8.
        comparable_ids: the ids of processes mean the same to all that share it.
    """

    def __init__(self, memory: Array, comparable_ids: bool, free: Callable[[], None]) -> None:
        self.bytes, self.comparable_ids = memory, comparable_ids
        self._free = free

    def free(self) -> None:
        """Give the memory back; collective if it was made collectively."""
        self._free()


def shared_memory_available() -> tuple[int, str]:
    """Return the bytes of shared memory that are free on this node, and the place where they are."""
    place = os.environ.get("OMPI_MCA_osc_sm_backing_directory", "/dev/shm")  # noqa: SIM112 Open MPI's own spelling
    if not Path(place).is_dir():
        return 2**63 - 1, place
    return shutil.disk_usage(place).free, place


def window_bytes(size: int) -> int:
    """Return the bytes of shared memory that a window of `size` bytes takes: MPI adds control pages of its own."""
    return size + 2**20 + size // 1000


def node_memory(node_comm: MPI.Intracomm, size: int) -> SharedMemory:
    """Allocate memory in one MPI window of the processes of a node. Collective.

    The free space is looked at first, and every page is touched before this returns: memory that is promised
    but not there would kill a process later, in the middle of a write.

    Raises:
        SharedMemoryError: too little is free; the same on every rank, before anything is allocated.
    """
    from mpi4py import MPI

    _check_space(node_comm, size)
    window = MPI.Win.Allocate_shared(size if node_comm.rank == 0 else 0, 1, comm=node_comm)
    buffer, _ = window.Shared_query(0)
    memory: Array = np.frombuffer(cast("Any", buffer), np.uint8)
    if node_comm.rank == 0:
        memory[:] = 0
    spaces = np.zeros(node_comm.size, np.int64)
    node_comm.Allgather(np.array([namespace()], np.int64), spaces)  # also: nobody goes on before the memory is zeroed
    return SharedMemory(memory, bool(np.all(spaces == spaces[0])), window.Free)


def forked_memory(size: int) -> SharedMemory:
    """Allocate memory that this process shares with those that it forks later."""
    block = mmap.mmap(-1, size)
    return SharedMemory(np.frombuffer(block, np.uint8), True, lambda: None)


def _check_space(node_comm: MPI.Intracomm, size: int) -> None:
    """Let the node's first process look, and all raise the same."""
    free, place = shared_memory_available()
    seen = np.array([free], np.int64)
    node_comm.Bcast(seen, 0)
    available = int(seen[0])
    if window_bytes(size) > available:
        mend = (
            "use fewer samples in a ring, smaller slots or fewer lanes, or give the node more "
            f"(a container: --shm-size; as root: mount -o remount,size=... {place}); stale files of killed runs "
            f"in {place} may be deleted"
        )
        raise SharedMemoryError(window_bytes(size), available, place, mend)
