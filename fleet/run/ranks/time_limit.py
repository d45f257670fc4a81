"""A bound for what cannot be bounded from inside: a user's code, and calls of MPI in which all ranks take part."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from fleet.coordination.lost_ranks import abort
from fleet.machine.launch.launched import FAILED
from fleet.machine.standard_streams import tell

if TYPE_CHECKING:
    from mpi4py import MPI


@contextmanager
def time_limit(world: MPI.Intracomm, seconds: float, text: str) -> Iterator[None]:
    """End all ranks of `world`, with `text`, if the block takes longer than `seconds`."""
    timer = threading.Timer(seconds, _end_all, (world, text))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def together(world: MPI.Intracomm, seconds: float, what: str) -> AbstractContextManager[None]:
    """A bound for what all ranks do together: none goes on before every one of them has done `what`."""
    late = f"rank {world.rank}: not every rank has {what} within {seconds:g} s, one is stuck or slow"
    return time_limit(world, seconds, f"{late}; if that really takes so long, raise resources.timeout")


def _end_all(world: MPI.Intracomm, text: str) -> None:
    tell(text)
    abort(world, FAILED)
