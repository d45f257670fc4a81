"""The ring: one copy of each sample for all processes of a node, in shared memory.

A ring has lanes, each carries one stream at a time. A slow reader makes the writers of its lane wait when the lane
is full, and with them the other readers: that is the pacing of FLEET (MLSys'20, section 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preprocess.ring.control import RingShape, divide
from preprocess.ring.lane import Lane
from preprocess.ring.passed_memory import passed_memory, received_memory
from preprocess.ring.shared_memory import SharedMemory, forked_memory, node_memory

if TYPE_CHECKING:
    from mpi4py import MPI


class Ring:
    """The ring of one node; made by `create`, `forked` or `passed`.

    Attributes:
        shape: its dimensions.
        lanes: its lanes.
    """

    def __init__(self, memory: SharedMemory, shape: RingShape) -> None:
        self._memory = memory
        self.shape = shape
        self.control, controls = divide(memory.bytes, shape)
        self._lane_controls = controls
        self.lanes = tuple(Lane(number, shape, self.control, control) for number, control in enumerate(controls))

    @classmethod
    def create(cls, node_comm: MPI.Intracomm, lanes: int, lane_bytes: int, slot_samples: int, writers: int) -> Ring:
        """Make the ring of a node. Collective over the processes that share the node's memory.

        Args:
            node_comm: communicator of the node's processes; a reader is named by its rank there.
            lanes: number of lanes.
            lane_bytes: bytes for the samples of one lane, see the function lane_bytes.
            slot_samples: samples of a slot.
            writers: preprocessors of the whole run.

        Raises:
            SharedMemoryError: too little is free; the same on every rank, before anything is allocated.
        """
        shape = RingShape(lanes, lane_bytes, slot_samples, node_comm.size, writers)
        ring = cls(node_memory(node_comm, shape.bytes), shape)
        if node_comm.rank == 0:
            ring._initialise()
        node_comm.Barrier()
        ring.control.register_reader(node_comm.rank)
        return ring

    @classmethod
    def forked(cls, shape: RingShape) -> Ring:
        """Make a ring for this process and those that it forks afterwards; without MPI."""
        ring = cls(forked_memory(shape.bytes), shape)
        ring._initialise()
        return ring

    @classmethod
    def passed(cls, shape: RingShape, touched: int) -> tuple[Ring, int]:
        """Make a ring for processes that get the descriptor which is returned with it; without MPI.

        Raises:
            SharedMemoryError: the node has less memory than `touched` bytes available.
        """
        memory, descriptor = passed_memory(shape.bytes, touched)
        ring = cls(memory, shape)
        ring._initialise()
        return ring, descriptor

    @classmethod
    def received(cls, shape: RingShape, descriptor: int) -> Ring:
        """Return the ring behind a descriptor that was passed to this process."""
        return cls(received_memory(descriptor), shape)

    def free(self) -> None:
        """Give the memory back; collective if it was made collectively. Nothing of the ring may be used afterwards."""
        self._memory.free()

    def _initialise(self) -> None:
        self.control.initialise(self._memory.comparable_ids)
        for control in self._lane_controls:
            control.initialise()
