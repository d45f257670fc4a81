"""Memory that all processes of a node share, the semaphores that lie in it, and whether those processes still live.

`sem_post` and `sem_wait` synchronise memory (POSIX.1-2017, 4.12): what a process wrote before it posted is seen by the
process that took the token. The ring rests on this alone, on every processor.

Memory without a name is shared with whoever gets its descriptor, and goes with the last of them: nothing is left behind
by processes that are killed, and a small /dev/shm does not limit it (memfd_create, Linux 3.17).
"""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import psutil

from preprocess.samples.errors import SharedMemoryError
from preprocess.samples.layout import Array

if TYPE_CHECKING:
    from mpi4py import MPI


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


#: Bytes that one semaphore takes: no less than any platform's sem_t, and a cache line of its own.
SEMAPHORE_BYTES = 64


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class SemaphoreArray:
    """Semaphores with indices of any dimension, in a stretch of shared memory.

    Args:
        memory: bytes of shared memory, uint8; the semaphores lie at its start.
        shape: how many along each dimension.
    """

    def __init__(self, memory: Array, shape: tuple[int, ...]) -> None:
        needed = SEMAPHORE_BYTES * math.prod(shape)
        if memory.nbytes < needed:
            raise ValueError(f"{memory.nbytes} bytes hold no {shape} semaphores, {needed} do")
        self._memory = memory  # keeps the memory alive
        self._base = memory.ctypes.data
        self._shape = shape
        self._library = _library()

    def initialise(self) -> None:
        """Set every semaphore to 0; nobody may use them meanwhile."""
        for place in range(math.prod(self._shape)):
            _check(self._library.sem_init(self._base + SEMAPHORE_BYTES * place, 1, 0), "sem_init")

    def post(self, *index: int) -> None:
        """Add a token."""
        _check(self._library.sem_post(self._address(index)), "sem_post")

    def ring(self, *index: int) -> None:
        """Add a token where only its being there counts, not how many there are."""
        if self._library.sem_post(self._address(index)) != 0 and ctypes.get_errno() != errno.EOVERFLOW:
            _check(-1, "sem_post")

    def try_wait(self, *index: int) -> bool:
        """Take a token if there is one, and say whether there was."""
        return _taken(self._library.sem_trywait(self._address(index)), "sem_trywait")

    def wait(self, *index: int, seconds: float) -> bool:
        """Wait for a token for at most so many seconds, and say whether one was taken."""
        address = self._address(index)
        if self._library.sem_trywait(address) == 0:
            return True
        return _taken(_timed_wait(self._library, address, max(seconds, 0.0)), "sem_timedwait")

    def drain(self, *index: int) -> None:
        """Take all tokens."""
        while self.try_wait(*index):
            pass

    def _address(self, index: tuple[int, ...]) -> int:
        place = 0
        for number, size in zip(index, self._shape, strict=True):
            if not 0 <= number < size:
                raise IndexError(f"semaphore {index} of {self._shape}")
            place = place * size + number
        return self._base + SEMAPHORE_BYTES * place


def fence() -> None:
    """Keep earlier reads and writes from mixing with later ones, by passing a private token."""
    memory = ctypes.create_string_buffer(SEMAPHORE_BYTES)
    library, address = _library(), ctypes.addressof(memory)
    _check(library.sem_init(address, 0, 1), "sem_init")
    _taken(library.sem_trywait(address), "sem_trywait")
    _check(library.sem_post(address), "sem_post")


@lru_cache(maxsize=1)
def _library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    try:
        library.sem_init.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
        library.sem_post.argtypes = [ctypes.c_void_p]
        library.sem_trywait.argtypes = [ctypes.c_void_p]
        library.sem_timedwait.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Timespec)]
        if hasattr(library, "sem_clockwait"):
            library.sem_clockwait.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Timespec)]
    except AttributeError as cause:
        raise OSError("this system's C library has no POSIX semaphores; run on Linux") from cause
    return library


def _timed_wait(library: Any, address: int, seconds: float) -> int:
    """Wait against the monotonic clock where the C library can (glibc 2.30), else against the wall clock."""
    monotonic = hasattr(library, "sem_clockwait")
    until = (time.monotonic() if monotonic else time.time()) + seconds
    whole = int(until)
    limit = ctypes.byref(_Timespec(whole, int((until - whole) * 1e9)))
    if monotonic:
        return int(library.sem_clockwait(address, time.CLOCK_MONOTONIC, limit))
    return int(library.sem_timedwait(address, limit))


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def _taken(result: int, call: str) -> bool:
    """Say whether a token was taken; an interrupting signal counts as a wait that ended early."""
    if result == 0:
        return True
    if ctypes.get_errno() in (errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR):
        return False
    _check(result, call)
    return False


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


def passed_memory(size: int, touched: int) -> tuple[SharedMemory, int]:
    """Allocate memory, zeroed, and return it with the descriptor to pass on.

    Args:
        size: bytes; pages are taken only when they are first written.
        touched: bytes that will be written at least.

    Raises:
        SharedMemoryError: the node has less memory than `touched` available.
    """
    available = psutil.virtual_memory().available
    if touched > available:
        raise SharedMemoryError(touched, available, "this node", "let a lane hold fewer samples, or end other programs")
    descriptor = os.memfd_create("samples", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, size)
    return received_memory(descriptor), descriptor


def received_memory(descriptor: int) -> SharedMemory:
    """Return the memory behind a descriptor that was passed here, whole."""
    block = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
    return SharedMemory(np.frombuffer(block, np.uint8), True, lambda: None)
