"""Messages between the members of a group over an mpi4py communicator.

MPI's own blocking calls spin at full speed and cannot be bounded, so every transfer here is an Isend or Irecv that is
tested: at once, then for some 50 us with the processor offered to others in between, then with naps that grow to
200 us. While it waits, a member looks for a peer's abort message. Importing this module starts MPI.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from mpi4py import MPI

from trainers.reduce.transport import Interrupted, PeerFailed, PeerSilent, Pending

__all__ = ["MpiTransport"]

_EAGER_SECONDS = 50e-6
_LONGEST_NAP = 200e-6
_DRAIN_SECONDS = 1.0
"""How long a member that gives up lets transfers that are already under way finish."""
_LARGEST_MESSAGE = 1 << 29
"""Bytes; MPI counts elements in a C int."""
_LONGEST_TEXT = 1024
"""Bytes of an abort message; small enough that MPI sends it without waiting for the receiver."""


@dataclass(frozen=True)
class _Transfer:
    peer: int
    requests: list[MPI.Request]
    memory: np.ndarray  # MPI reads or writes it until the requests are complete
    receives: bool

    @property
    def done(self) -> bool:
        return all(request.Test() for request in self.requests)


class MpiTransport:
    """Messages among `ranks` of `comm`, with tags `tag` and `tag + 1` (aborts).

    ranks: the members' ranks in `comm`, in the group's order; all of `comm` if None.
    names: what to call the members in errors, such as their ranks in the job; `ranks` if None.
    timeout: seconds after which a wait gives up.
    any_thread: whether MPI was started for threads that call it as they like (MPI_THREAD_MULTIPLE).
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        ranks: Sequence[int] | None = None,
        *,
        tag: int = 0,
        names: Sequence[int] | None = None,
        timeout: float = 300.0,
    ) -> None:
        self._comm = comm
        self._ranks = list(range(comm.Get_size()) if ranks is None else ranks)
        self._names = list(self._ranks if names is None else names)
        self._tag, self._abort_tag = tag, tag + 1
        self._timeout = timeout
        self.index = self._ranks.index(comm.Get_rank())
        self.size = len(self._ranks)
        self.any_thread = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self._interrupted = threading.Event()
        self._keep_alive: list[_Transfer] = []

    def send(self, peer: int, memory: np.ndarray) -> Pending:
        """Begin to send; an empty array is not sent."""
        requests = [self._comm.Isend([piece, MPI.BYTE], self._ranks[peer], self._tag) for piece in _pieces(memory)]
        return _Transfer(peer, requests, memory, False)

    def receive(self, peer: int, memory: np.ndarray) -> Pending:
        """Begin to fill `memory`, whose size both sides know."""
        requests = [self._comm.Irecv([piece, MPI.BYTE], self._ranks[peer], self._tag) for piece in _pieces(memory)]
        return _Transfer(peer, requests, memory, True)

    def wait(self, pending: Sequence[Pending]) -> float:
        """Return, once all are complete, the seconds that it took.

        PeerSilent names the ranks that did not answer in time; PeerFailed the one that aborted.
        """
        begin = time.perf_counter()
        transfers = cast("list[_Transfer]", pending)
        while transfers := [transfer for transfer in transfers if not transfer.done]:
            elapsed = time.perf_counter() - begin
            try:
                self._look_around(transfers, elapsed)
            except (PeerFailed, PeerSilent, Interrupted):
                self._give_up(transfers)
                raise
            if elapsed > _EAGER_SECONDS:
                time.sleep(min(elapsed / 4, _LONGEST_NAP))
            else:
                os.sched_yield()
        return time.perf_counter() - begin

    def interrupt(self) -> None:
        """Make every wait raise Interrupted, now and from now on."""
        self._interrupted.set()

    def check(self) -> None:
        """Raise PeerFailed if a peer has aborted."""
        status = MPI.Status()
        if self._comm.Iprobe(MPI.ANY_SOURCE, self._abort_tag, status):
            text = np.empty(status.Get_count(MPI.BYTE), dtype=np.uint8)
            self._comm.Recv([text, MPI.BYTE], status.Get_source(), self._abort_tag)
            raise PeerFailed(
                self._names[self._ranks.index(status.Get_source())], text.tobytes().decode(errors="replace")
            )

    def abort(self, text: str) -> None:
        """Tell every peer that this member gave up and why; the communicator is of no use afterwards."""
        message = np.frombuffer(text.encode()[:_LONGEST_TEXT], dtype=np.uint8)
        transfers = [
            _Transfer(peer, [self._comm.Isend([message, MPI.BYTE], rank, self._abort_tag)], message, False)
            for peer, rank in enumerate(self._ranks)
            if peer != self.index
        ]
        self._give_up(transfers)

    def close(self) -> None:
        """Free the communicator; call it after a common barrier, so that no message is left in it."""
        self._comm.Free()

    def _look_around(self, transfers: Sequence[_Transfer], elapsed: float) -> None:
        self.check()
        if self._interrupted.is_set():
            raise Interrupted("this member gives up")
        if elapsed > self._timeout:
            raise PeerSilent(sorted({self._names[transfer.peer] for transfer in transfers}), self._timeout)

    def _give_up(self, transfers: list[_Transfer]) -> None:
        """Cancel what no peer has begun, let the rest end, keep the memory of what does not: MPI may still use it."""
        for transfer in transfers:
            if transfer.receives:
                for request in transfer.requests:
                    request.Cancel()
        begin = time.perf_counter()
        while (transfers := [transfer for transfer in transfers if not transfer.done]) and (
            time.perf_counter() - begin < _DRAIN_SECONDS
        ):
            time.sleep(_LONGEST_NAP)
        if transfers:
            self._keep_alive += transfers
            self._comm.Set_attr(MPI.Comm.Create_keyval(), self._keep_alive)


def _pieces(memory: np.ndarray) -> list[np.ndarray]:
    return [memory[start : start + _LARGEST_MESSAGE] for start in range(0, memory.size, _LARGEST_MESSAGE)]
