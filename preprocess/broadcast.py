"""Between nodes: the maker of a slot sends it straight from its ring into the rings of the other nodes.

The stream of one lane from one preprocessor to one other node is a conversation that both sides end:

* the maker sends each of its slots as two messages, inputs and targets, and at its end two empty ones;
* the receiver sends one empty message, "enough", when its readers have left, when it is told to stop, or when it got
  the end; from then on it receives into scrap memory until the end has come;
* the maker, on "enough" or when it is told to stop, sends the end.

Exactly one end and one "enough" pass each time. So every message that was sent is received, wherever the two sides
stood, and once both have said so the lane can carry another stream under the same tags: messages between two ranks
with one tag keep their order (MPI-4.1, 3.5).

A receive is posted only for a free slot, and its sends hold a slot like readers until they are complete: a slow node
makes the maker wait. MPI is only tested, never waited in: a waiting MPI call would spin on a core that computes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from preprocess.lane_writer import LaneWriter, Slot
from preprocess.layout import Array

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Inlet", "RemoteNode"]


class RemoteNode:
    """Another node as a holder of one preprocessor's slots of one lane: the maker's side of the conversation.

    Args:
        comm: communicator for slots and nothing else.
        node: the other node.
        rank: who receives there.
        lane: number of the lane.
    """

    def __init__(self, comm: MPI.Comm, node: int, rank: int, lane: int) -> None:
        self._comm, self._node, self._rank = comm, node, rank
        self._tags = _tags(lane)
        self._sends: deque[list[MPI.Request]] = deque()
        self._sent = 0
        self._ended = False
        self._enough = comm.Irecv(_nothing(), rank, self._tags[2])
        self._said_enough = False

    @property
    def name(self) -> str:
        """How an error names it."""
        return f"node {self._node} (received by rank {self._rank})"

    def publish(self, slot: Slot) -> None:
        """Send the slot, unless the conversation is at its end."""
        if not self._ended:
            self._send(slot.inputs, slot.targets)
            self._sent += 1

    def has_released(self, slots: int) -> bool:
        """Say whether the sends of the first so many slots are complete."""
        self.progress()
        return self._sent - len(self._sends) >= slots or (self._ended and not self._sends)

    def has_left(self) -> bool:
        """Say whether the conversation is over and nothing of it is under way."""
        self.progress()
        return self._ended and self._said_enough and not self._sends

    def is_dead(self) -> bool:
        """Return False: with another node the whole job dies."""
        return False

    def end(self) -> None:
        """Send the end, once; `has_left` becomes true when the other side is through as well."""
        if not self._ended:
            self._ended = True
            self._send(_nothing(), _nothing())

    def progress(self) -> None:
        """Let MPI work, and answer "enough" with the end."""
        while self._sends and all(request.Test() for request in self._sends[0]):
            self._sends.popleft()
        if not self._said_enough and self._enough.Test():
            self._said_enough = True
            self.end()

    def _send(self, *blocks: Array) -> None:
        requests = [self._comm.Isend(_as_bytes(block), self._rank, tag) for block, tag in zip(blocks, self._tags)]
        self._sends.append(requests)


class Inlet:
    """The receiver's side of the conversation about one lane with one preprocessor of another node.

    Args:
        comm: communicator for slots and nothing else.
        rank: of the preprocessor.
        lane: number of the lane.
        writer: fills that preprocessor's slots in the ring of this node.
    """

    def __init__(self, comm: MPI.Comm, rank: int, lane: int, writer: LaneWriter) -> None:
        self._comm, self._rank, self._tags, self._writer = comm, rank, _tags(lane), writer
        self._receive: _Receive | None = None
        self._enough: MPI.Request | None = None
        self._ended = False

    def stop(self) -> None:
        """Say "enough", once."""
        if self._enough is None:
            self._enough = self._comm.Isend(_nothing(), self._rank, self._tags[2])

    def step(self) -> bool:
        """Do what can be done without waiting, and say whether something came in."""
        if self._ended:
            return False
        if self._enough is None and self._writer.deserted:
            self.stop()
        if self._receive is None:
            self._receive = self._post()
        if self._receive is None or not self._receive.is_complete():
            return False
        self._accept(self._receive)
        return True

    def is_closed(self) -> bool:
        """Say whether the conversation is over and nothing of it is under way; the writer is closed then."""
        over = self._ended and self._enough is not None and self._enough.Test()
        if over:
            self._writer.close()
        return over

    def _post(self) -> _Receive | None:
        """Receive into the next slot if it is free, or into scrap memory if nobody wants it."""
        if self._enough is None and not self._writer.has_space():
            return None
        slot = self._writer.next_slot
        if self._enough is None:
            return _Receive(self._comm, self._rank, self._tags, slot.inputs, slot.targets, wanted=True)
        scrap = np.empty_like(slot.inputs), np.empty_like(slot.targets)
        return _Receive(self._comm, self._rank, self._tags, *scrap, wanted=False)

    def _accept(self, receive: _Receive) -> None:
        self._receive = None
        if receive.is_end:
            self._ended = True
            self.stop()
        elif receive.wanted:
            self._writer.publish()


class _Receive:
    """The two receives of one slot, or of the end."""

    def __init__(
        self, comm: MPI.Comm, rank: int, tags: tuple[int, int, int], inputs: Array, targets: Array, wanted: bool
    ) -> None:
        from mpi4py import MPI

        self.wanted = wanted
        self._blocks = inputs, targets
        self._byte = MPI.BYTE
        self._status = MPI.Status()
        self._inputs = comm.Irecv(_as_bytes(inputs), rank, tags[0])
        self._targets = comm.Irecv(_as_bytes(targets), rank, tags[1])
        self._inputs_here = False
        self.is_end = False

    def is_complete(self) -> bool:
        """Say whether both have come."""
        if not self._inputs_here and self._inputs.Test(self._status):
            self._inputs_here = True
            self.is_end = self._status.Get_count(self._byte) == 0
        return self._inputs_here and self._targets.Test()


def _tags(lane: int) -> tuple[int, int, int]:
    """Return a lane's tags for inputs, targets and "enough"."""
    return 3 * lane, 3 * lane + 1, 3 * lane + 2


def _as_bytes(block: Array) -> Array:
    return block.reshape(-1).view(np.uint8)


def _nothing() -> Array:
    return np.empty(0, np.uint8)
