"""Process-shared POSIX semaphores that lie in shared memory.

`sem_post` and `sem_wait` synchronise memory (POSIX.1-2017, 4.12): what a process wrote before it posted is
seen by the process that took the token. The ring rests on this alone, on every processor.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import time
from functools import lru_cache
from typing import Any

from preprocess.samples.layout import Array

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
