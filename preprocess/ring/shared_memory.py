"""One stretch of memory that all processes of a node share."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from preprocess.ring.process import namespace
from preprocess.samples.errors import SharedMemoryError
from preprocess.samples.layout import Array

if TYPE_CHECKING:
    from mpi4py import MPI

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
    """Allocate memory that the processes of a node share. Collective.

    The free space is looked at first, and every page is there before this returns: memory that is promised but not
    there would kill a process later, in the middle of a write. A file without a name is shared where that can be:
    nothing stays behind of processes that are killed, and MPI need not keep a window whole when one is lost.

    Raises:
        SharedMemoryError: too little is free; the same on every rank, before anything is allocated.
    """
    _check_space(node_comm, size)
    spaces = np.zeros(node_comm.size, np.int64)
    node_comm.Allgather(np.array([namespace()], np.int64), spaces)
    comparable = bool(np.all(spaces == spaces[0]))
    memory = _nameless(node_comm, size) if comparable else None
    return SharedMemory(memory, True, lambda: None) if memory is not None else _window(node_comm, size, comparable)


def _nameless(node_comm: MPI.Intracomm, size: int) -> Array | None:
    """A file of the first process that has no name, which the others open by its descriptor; None if one cannot."""
    where = np.array([-1, os.getpid()], np.int64)
    memory: Array | None = None
    descriptor = -1
    with suppress(OSError, AttributeError):
        if node_comm.rank == 0:
            descriptor = os.open(shared_memory_available()[1], os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
            os.posix_fallocate(descriptor, 0, size)
            where[0] = descriptor
    node_comm.Bcast(where, 0)
    with suppress(OSError):
        if where[0] >= 0 and node_comm.rank != 0:
            descriptor = os.open(f"/proc/{where[1]}/fd/{where[0]}", os.O_RDWR | os.O_CLOEXEC)
        if where[0] >= 0:
            memory = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
    have = np.array([memory is not None], np.int64)
    everywhere = np.zeros(node_comm.size, np.int64)
    node_comm.Allgather(have, everywhere)  # also: nobody's descriptor is closed before it is opened elsewhere
    if descriptor >= 0:
        os.close(descriptor)
    return memory if everywhere.all() else None


def _window(node_comm: MPI.Intracomm, size: int, comparable: bool) -> SharedMemory:
    """A window of MPI: also for processes that cannot see each other's files."""
    from mpi4py import MPI

    window = MPI.Win.Allocate_shared(size if node_comm.rank == 0 else 0, 1, comm=node_comm)
    buffer, _ = window.Shared_query(0)
    memory: Array = np.frombuffer(cast("Any", buffer), np.uint8)
    if node_comm.rank == 0:
        memory[:] = 0
    node_comm.Barrier()  # nobody goes on before the memory is zeroed
    return SharedMemory(memory, comparable, window.Free)


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
