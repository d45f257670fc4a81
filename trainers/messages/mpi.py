"""Messages between the members of a group over an mpi4py communicator.

MPI's own blocking calls spin at full speed and cannot be bounded, so every transfer here is an Isend or Irecv that is
tested: at once, then for some 50 us with the processor offered to others in between, then with naps that grow to
200 us. While it waits, a member looks for a peer's abort message. Where MPI tells of lost processes (ULFM: Bland et
al., Post-failure recovery of MPI communication capability, IJHPCA 2013), a lost peer has failed as well. Importing
this module starts MPI.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import numpy as np
from mpi4py import MPI

from trainers.device.device_streams import LONGEST_BACKOFF, backoff
from trainers.messages.transport import Interrupted, PeerFailed, PeerSilent, Pending

_DRAIN_SECONDS = 0.1
"""How long a member that gives up lets its sends finish: a peer that gave up as well never takes them."""
_LARGEST_MESSAGE = 1 << 29
"""Bytes; MPI counts elements in a C int."""
_CALLS_FOR_EVENTS = 8
"""Open MPI hears of lost processes at every eighth call where nothing else is asked of it."""
_LOSSES = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)
"""Classes of errors by which MPI says that a process is gone."""
_LONGEST_TEXT = 1024
"""Bytes of an abort message; small enough that MPI sends it without waiting for the receiver."""


@dataclass(frozen=True)
class _Transfer:
    peer: int
    requests: list[MPI.Request]
    memory: np.ndarray  # MPI reads or writes it until the requests are complete
    receives: bool
    lost: Callable[[int, MPI.Exception], Exception]

    @property
    def done(self) -> bool:
        try:
            return all(request.Test() for request in self.requests)
        except MPI.Exception as error:
            raise self.lost(self.peer, error) from error

    @property
    def settled(self) -> bool:
        """Whether it is over, for good or ill."""
        try:
            return self.done
        except (PeerFailed, MPI.Exception):  # MPI knows no request that has ended with an error
            return True


class MpiTransport:
    """Messages among `ranks` of `comm`, with tags `tag` and `tag + 1` (aborts).

    No communicator is made of them: that could not be bounded, nor done once a rank of `comm` is lost.
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
        self.names: Sequence[int] = list(self._ranks if names is None else names)
        self._tag, self._abort_tag = tag, tag + 1
        self.timeout = timeout
        self.index = self._ranks.index(comm.Get_rank())
        self.size = len(self._ranks)
        self.any_thread = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self.interrupted = False
        self._open: dict[int, _Transfer] = {}  # begun, and not waited for to the end
        self._keep_alive: list[_Transfer] = []
        self._status = MPI.Status()
        self._has_losses = False  # whether MPI refuses to ask for messages from anybody, as a process is gone

    def communicator(self) -> MPI.Intracomm:
        """Return a new communicator of the members, to be freed; all make it at once, in a wait without a bound."""
        everyone = self._comm.Get_group()
        members = everyone.Incl(self._ranks)
        made = self._comm.Create_group(members, self._tag)
        members.Free()
        everyone.Free()
        return made

    def send(self, peer: int, memory: np.ndarray) -> Pending:
        """Begin to send; an empty array is not sent."""
        return self._begin(self._comm.Isend, peer, memory, False)

    def receive(self, peer: int, memory: np.ndarray) -> Pending:
        """Begin to fill `memory`, whose size both sides know."""
        return self._begin(self._comm.Irecv, peer, memory, True)

    def _begin(self, call: Callable[..., MPI.Request], peer: int, memory: np.ndarray, receives: bool) -> _Transfer:
        try:
            requests = [call([piece, MPI.BYTE], self._ranks[peer], self._tag) for piece in _pieces(memory)]
        except MPI.Exception as error:
            raise self._lost(peer, error) from error
        transfer = _Transfer(peer, requests, memory, receives, self._lost)
        self._open[id(transfer)] = transfer
        return transfer

    def wait(self, pending: Sequence[Pending]) -> float:
        """Return, once all are complete, the seconds that it took.

        PeerSilent names the ranks that did not answer in time; PeerFailed the one that aborted.
        """
        begin = time.perf_counter()
        transfers = waited = cast("list[_Transfer]", pending)
        try:
            while transfers := [transfer for transfer in transfers if not transfer.done]:
                elapsed = time.perf_counter() - begin
                self._look_around(elapsed, transfers)
                backoff(elapsed)
        except (PeerFailed, PeerSilent, Interrupted):
            self._give_up()
            raise
        for transfer in waited:
            self._open.pop(id(transfer), None)
        return time.perf_counter() - begin

    def interrupt(self) -> None:
        """Make every wait raise Interrupted, now and from now on."""
        self.interrupted = True

    def check(self) -> None:
        """Raise PeerFailed if a peer has aborted, or is lost."""
        for _ in range(_CALLS_FOR_EVENTS):
            self._check_once()

    def _check_once(self) -> None:
        """Look once, as waits do: one that looked more often would hear of an abort before what was sent before it."""
        if not self._has_losses:
            try:
                self._probe(MPI.ANY_SOURCE)
                return
            except MPI.Exception as error:
                if error.Get_error_class() not in _LOSSES:
                    raise
                self._has_losses = True  # perhaps of another group's member: from now on each peer is asked for
        for peer, rank in enumerate(self._ranks):
            if peer != self.index:
                try:
                    self._probe(rank)
                except MPI.Exception as error:
                    raise self._lost(peer, error) from error

    def _probe(self, source: int) -> None:
        """Raise PeerFailed if an abort message from `source` is there; one probe asks for those of all peers."""
        while self._comm.Iprobe(source, self._abort_tag, self._status):
            rank = self._status.Get_source()
            text = np.empty(self._status.Get_count(MPI.BYTE), dtype=np.uint8)
            self._comm.Recv([text, MPI.BYTE], rank, self._abort_tag)
            if rank in self._ranks:  # else it is left over from a group that had this tag before
                peer = self._ranks.index(rank)
                raise PeerFailed(self.names[peer], text.tobytes().decode(errors="replace"))

    def abort(self, text: str) -> None:
        """Tell every peer that this member gave up and why; the group is of no use afterwards."""
        message = np.frombuffer(text.encode()[:_LONGEST_TEXT], dtype=np.uint8)
        for peer, rank in enumerate(self._ranks):
            if peer != self.index:
                with suppress(MPI.Exception):  # lost itself
                    request = self._comm.Isend([message, MPI.BYTE], rank, self._abort_tag)
                    transfer = _Transfer(peer, [request], message, False, self._lost)
                    self._open[id(transfer)] = transfer
        self._give_up()

    def close(self) -> None:
        """Free nothing; call it after a common barrier, so that no message is left."""

    def _lost(self, peer: int, error: MPI.Exception) -> Exception:
        """Return what an error of MPI means: that a process is gone, or what MPI says."""
        if error.Get_error_class() in _LOSSES:
            return PeerFailed(self.names[peer], "its process was lost")
        return error

    def _look_around(self, elapsed: float, transfers: Sequence[_Transfer]) -> None:
        self._check_once()
        if self.interrupted:
            raise Interrupted("this member gives up")
        if elapsed > self.timeout:
            raise PeerSilent(sorted({self.names[transfer.peer] for transfer in transfers}), self.timeout)

    def _give_up(self) -> None:
        """Cancel what no peer has begun, let the rest end, keep the memory of what does not: MPI may still use it.

        That is all that is open: what a peer sent before it failed may come late, and lands where it was told.
        """
        transfers, self._open = list(self._open.values()), {}
        for transfer in transfers:
            if transfer.receives:
                for request in transfer.requests:
                    with suppress(MPI.Exception):  # it has ended: its peer was lost
                        request.Cancel()
        begin = time.perf_counter()
        while (transfers := [transfer for transfer in transfers if not transfer.settled]) and (
            time.perf_counter() - begin < _DRAIN_SECONDS
        ):
            time.sleep(LONGEST_BACKOFF)
        if transfers:
            self._keep_alive += transfers
            self._comm.Set_attr(MPI.Comm.Create_keyval(), self._keep_alive)


def _pieces(memory: np.ndarray) -> list[np.ndarray]:
    return [memory[start : start + _LARGEST_MESSAGE] for start in range(0, memory.size, _LARGEST_MESSAGE)]
