"""A bound for what cannot be bounded from inside: a user's code, and calls of MPI in which all ranks take part."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleet.coordination.lost_ranks import abort
from fleet.machine.launch.exit_codes import FAILED
from fleet.machine.standard_error import tell

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


def _end_all(world: MPI.Intracomm, text: str) -> None:
    tell(text)
    abort(world, FAILED)
