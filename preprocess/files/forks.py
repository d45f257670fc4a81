"""Processes that are forked from one which has taken signals over, such as those of a `multiprocessing.Pool`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable


def let_forks_end(numbers: Iterable[int]) -> None:
    """Let these signals end the processes that are forked from now on, whatever they do here.

    A pool sends SIGTERM to its processes and waits for them: those that only note a signal, or ignore it, stay on.
    Signals that come while a process forks wait until the new one has its own way to take them.
    """
    taken = frozenset(numbers)
    here = threading.local()  # masks belong to threads

    def hold() -> None:
        here.mask = signal.pthread_sigmask(signal.SIG_BLOCK, taken)

    def go_on() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, here.mask)

    def be_a_fork() -> None:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        go_on()

    os.register_at_fork(before=hold, after_in_parent=go_on, after_in_child=be_a_fork)
