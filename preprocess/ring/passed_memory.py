"""Shared memory without a name: a process that gets its descriptor shares it, and it goes with the last of them.

Nothing is left behind by processes that are killed, and a small /dev/shm does not limit it (memfd_create, Linux 3.17).
"""

from __future__ import annotations

import mmap
import os

import numpy as np
import psutil

from preprocess.ring.shared_memory import SharedMemory
from preprocess.samples.errors import SharedMemoryError


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
