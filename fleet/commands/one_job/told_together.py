"""How ranks that fail together have rank 0 tell of it, in waits that are bounded: what held one up may hold all up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from fleet.commands.one_job.last_words import LastWords, tell_all

if TYPE_CHECKING:
    from mpi4py import MPI

WORDS_SECONDS = 10.0
"""In which rank 0 has the words of all that are not held up."""
ANSWER_SECONDS = 20.0
"""In which rank 0 has told them; it may train yet, and another rank then tells its words itself."""
_WORDS, _ANSWER = 11, 12  # tags that no group has
_POLL_SECONDS = 0.002


def tell_together(world: MPI.Intracomm, own: LastWords) -> int:
    """Tell why this rank ends, or have rank 0 tell it; return the exit code. Every rank that fails calls this."""
    from mpi4py import MPI

    try:
        return _lead(world, own) if world.rank == 0 else _follow(world, own)
    except MPI.Exception:  # a rank was lost meanwhile
        return tell_all({world.rank: own}, world.size)


def _lead(world: MPI.Intracomm, own: LastWords) -> int:
    """Hear all that speak in time, tell it, and let them end: launchers end all ranks with the first."""
    others = [_Ear(world, rank) for rank in range(1, world.size)]
    _within(WORDS_SECONDS, lambda: not [ear for ear in others if not ear.has_heard()])
    words = {ear.rank: ear.said for ear in others if ear.said is not None}
    is_known = own.echo and any(ear.has_told for ear in others)
    code = own.code if is_known and not words else tell_all({0: own, **words}, world.size)
    for rank in words:
        world.Isend([bytearray(1), _bytes()], rank, _ANSWER)
    return code


def _follow(world: MPI.Intracomm, own: LastWords) -> int:
    """Give rank 0 the words and wait until it has told them."""
    said, answer = bytearray(json.dumps(asdict(own)).encode()), bytearray(1)
    sent, answered = world.Isend([said, _bytes()], 0, _WORDS), world.Irecv([answer, _bytes()], 0, _ANSWER)
    if not _within(ANSWER_SECONDS, lambda: sent.Test() & answered.Test()) and not own.echo:
        tell_all({world.rank: own}, world.size)
        world.Isend([bytearray(), _bytes()], 0, _WORDS)
    return own.code


class _Ear:
    """What rank 0 hears of another rank. said: its words, unless it has_told them itself."""

    def __init__(self, world: MPI.Intracomm, rank: int) -> None:
        self.rank, self.has_told = rank, False
        self.said: LastWords | None = None
        self._world = world
        self._heard: bytearray | None = None
        self._coming: MPI.Request | None = None

    def has_heard(self) -> bool:
        """Whether the rank has spoken."""
        from mpi4py import MPI

        if self._coming is not None and self._coming.Test():
            heard, self._coming = bytes(self._heard or b""), None
            self.said, self.has_told = LastWords(**json.loads(heard)) if heard else None, not heard
        status = MPI.Status()
        if self._coming is None and (message := self._world.Improbe(self.rank, _WORDS, status)) is not None:
            self._heard = bytearray(status.Get_count(MPI.BYTE))
            self._coming = message.Irecv([self._heard, MPI.BYTE])
        return self._heard is not None and self._coming is None


def _bytes() -> MPI.Datatype:
    from mpi4py import MPI

    return MPI.BYTE


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Wait until something holds; return whether it does in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_SECONDS)
    return True
