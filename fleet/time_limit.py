"""A bound for what cannot be bounded from inside: a user's code, and calls of MPI in which all ranks take part."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def time_limit(seconds: float, text: str) -> Iterator[None]:
    """End all ranks, with `text`, if the block takes longer than `seconds`."""
    timer = threading.Timer(seconds, _end_all, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end_all(text: str) -> None:
    from mpi4py import MPI

    print(f"fleet: {text}", file=sys.stderr, flush=True)
    MPI.COMM_WORLD.Abort(1)
