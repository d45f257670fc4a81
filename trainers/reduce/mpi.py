"""Messages between the members of a group over an mpi4py communicator.

MPI's own blocking calls spin at full speed and cannot be bounded, so every transfer here is an Isend or Irecv that is
tested: at once, then without a pause for some 50 us, then with naps that grow to 200 us. While it waits, a member looks
for a peer's abort message. Importing this module starts MPI.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from trainers.reduce.transport import Parcel, PeerFailed, PeerSilent

__all__ = ["MpiTransport"]

_SPIN_SECONDS = 50e-6
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
    request: MPI.Request
    memory: np.ndarray  # MPI reads or writes it until the request is complete
    receives: bool


class MpiTransport:
    """Messages among `ranks` of `comm`, with tags `tag` and `tag + 1` (aborts).

    ranks: the members' ranks in `comm`, in the group's order; all of `comm` if None.
    names: what to call the members in errors, such as their ranks in the job; `ranks` if None.
    timeout: seconds after which a wait gives up.
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
        self.waited = 0.0
        self._keep_alive: list[_Transfer] = []

    def exchange(self, sends: Sequence[Parcel], receives: Sequence[Parcel]) -> None:
        """Complete all sends and receives; empty arrays are not sent. Both sides know the sizes.

        PeerSilent names the ranks that did not answer in time; PeerFailed the one that aborted.
        """
        transfers = [self._post(peer, piece, True) for peer, memory in receives for piece in _pieces(memory)]
        transfers += [self._post(peer, piece, False) for peer, memory in sends for piece in _pieces(memory)]
        self._wait(transfers)

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
        requests = [
            _Transfer(peer, self._comm.Isend([message, MPI.BYTE], rank, self._abort_tag), message, False)
            for peer, rank in enumerate(self._ranks)
            if peer != self.index
        ]
        self._give_up(requests)

    def close(self) -> None:
        """Free the communicator; call it after a common barrier, so that no message is left in it."""
        self._comm.Free()

    def _post(self, peer: int, memory: np.ndarray, receives: bool) -> _Transfer:
        start = self._comm.Irecv if receives else self._comm.Isend
        return _Transfer(peer, start([memory, MPI.BYTE], self._ranks[peer], self._tag), memory, receives)

    def _wait(self, transfers: list[_Transfer]) -> None:
        begin = time.perf_counter()
        while transfers := [transfer for transfer in transfers if not transfer.request.Test()]:
            elapsed = time.perf_counter() - begin
            try:
                self.check()
                if elapsed > self._timeout:
                    late = sorted({self._names[transfer.peer] for transfer in transfers})
                    raise PeerSilent(late, self._timeout)
            except (PeerFailed, PeerSilent):
                self._give_up(transfers)
                raise
            if elapsed > _SPIN_SECONDS:
                time.sleep(min(elapsed / 4, _LONGEST_NAP))
        self.waited += time.perf_counter() - begin

    def _give_up(self, transfers: list[_Transfer]) -> None:
        """Cancel what no peer has begun, let the rest end, keep the memory of what does not: MPI may still use it."""
        for transfer in transfers:
            if transfer.receives:
                transfer.request.Cancel()
        begin = time.perf_counter()
        while (transfers := [transfer for transfer in transfers if not transfer.request.Test()]) and (
            time.perf_counter() - begin < _DRAIN_SECONDS
        ):
            time.sleep(_LONGEST_NAP)
        if transfers:
            self._keep_alive += transfers
            self._comm.Set_attr(MPI.Comm.Create_keyval(), self._keep_alive)


def _pieces(memory: np.ndarray) -> list[np.ndarray]:
    return [memory[start : start + _LARGEST_MESSAGE] for start in range(0, memory.size, _LARGEST_MESSAGE)]
