"""Bells in a node's shared memory: a rank that has sent a message wakes whoever waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet.coordination.protocol import TO_COORDINATOR, TO_KEEPER, TO_PREPROCESSOR, TO_TRAINER
from preprocess.ring.semaphore import SEMAPHORE_BYTES, SemaphoreArray
from preprocess.ring.shared_memory import SharedMemory, forked_memory, node_memory

if TYPE_CHECKING:
    from mpi4py import MPI

_PLACES = {inbox: place for place, inbox in enumerate((TO_COORDINATOR, TO_PREPROCESSOR, TO_TRAINER, TO_KEEPER))}


class Bells:
    """A bell for each inbox of each rank of a node; made by `create`, or `alone` for one rank without MPI.

    A message itself goes over MPI, and is looked for there. So a bell that nobody rings costs time, and no message.

    Args:
        memory: shared by the ranks, zeroed.
        ranks: of the node, by seat.
        rank: this one.
        reaches_all: whether all ranks of the run are here.
    """

    def __init__(self, memory: SharedMemory, ranks: Sequence[int], rank: int, reaches_all: bool) -> None:
        self._memory = memory
        self._seats = {each: seat for seat, each in enumerate(ranks)}
        self._own, self.reaches_all = self._seats[rank], reaches_all
        self._bells = SemaphoreArray(memory.bytes, (len(ranks), len(_PLACES)))

    @classmethod
    def create(cls, node_comm: MPI.Intracomm, ranks: Sequence[int], reaches_all: bool) -> Bells:
        """Collective over the ranks of a node.

        Raises:
            SharedMemoryError: too little is free; the same on every rank.
        """
        memory = node_memory(node_comm, _bytes_of(ranks))
        bells = cls(memory, ranks, ranks[node_comm.rank], reaches_all)
        if node_comm.rank == 0:
            bells.initialise()
        node_comm.Barrier()  # nobody rings before
        return bells

    @classmethod
    def alone(cls, ranks: Sequence[int] = (0,), reaches_all: bool = True) -> Bells:
        """Those of the first rank, for threads of this process and those that it forks afterwards."""
        bells = cls(forked_memory(_bytes_of(ranks)), ranks, ranks[0], reaches_all)
        bells.initialise()
        return bells

    def initialise(self) -> None:
        """Silence all; nobody may use them meanwhile."""
        self._bells.initialise()

    def ring(self, rank: int, inbox: int) -> None:
        """Wake who waits at an inbox, if its rank is on this node."""
        if rank in self._seats:
            self._bells.ring(self._seats[rank], _PLACES[inbox])

    def wait(self, inbox: int, seconds: float) -> bool:
        """Wait at an inbox of this rank until somebody rings, for at most so many seconds, and say whether one did."""
        rung = self._bells.wait(self._own, _PLACES[inbox], seconds=seconds)
        if rung:
            self._bells.drain(self._own, _PLACES[inbox])
        return rung


def _bytes_of(ranks: Sequence[int]) -> int:
    return len(ranks) * len(_PLACES) * SEMAPHORE_BYTES
