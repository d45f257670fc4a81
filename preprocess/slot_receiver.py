"""One for each node: opens the node's lanes and receives what preprocessors of other nodes make."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from preprocess.back_off import BackOff
from preprocess.broadcast import Inlet
from preprocess.errors import RingTimeout
from preprocess.nodes import NodeMap
from preprocess.ring import Ring
from preprocess.stream import LaneSpec

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["SlotReceiver"]


class SlotReceiver:
    """Opens the lanes of one node and fills them with the slots that other nodes send.

    The caller drives it, most simply in a thread of the node's lowest rank: `step` until it returns False, then
    `wait`, and its own messages in between. Nothing blocks: openings and closings are finished by later steps.

    Args:
        ring: the ring of this node.
        node: number of this node.
        nodes: where the preprocessors and receivers are.
        comm: communicator for slots and nothing else, the same as the preprocessors'; MPI_THREAD_MULTIPLE is needed
            if another thread of this process uses MPI.
        patience: seconds that an opening may take.
    """

    def __init__(self, ring: Ring, node: int, nodes: NodeMap, comm: MPI.Comm | None, patience: float = 60.0) -> None:
        self._ring, self._node, self._nodes, self._comm = ring, node, nodes, comm
        self._patience = patience
        self._lanes: dict[int, list[_Received]] = {}
        self._back_off = BackOff()

    def open_lane(self, spec: LaneSpec) -> None:
        """Open a lane on this node, as soon as the users of its last opening have gone."""
        self._lanes.setdefault(spec.lane, []).append(_Received(spec))

    def close_lane(self, lane: int) -> None:
        """Receive no more of a lane; it also closes by itself when its readers have left or its makers are through."""
        for received in self._lanes.get(lane, []):
            received.stopping = True

    def is_closed(self, lane: int) -> bool:
        """Say whether nothing is received for the lane and no opening of it is under way."""
        return lane not in self._lanes

    def step(self) -> bool:
        """Do what can be done without waiting, and say whether anything happened.

        Raises:
            RingTimeout: an opening took too long; the text says who still uses the lane.
        """
        happened = False
        for lane, waiting in list(self._lanes.items()):
            happened |= self._step_lane(waiting)
            if not waiting:
                del self._lanes[lane]
        if happened:
            self._back_off.reset()
        return happened

    def wait(self, timeout: float) -> None:
        """Sleep a little, at most so many seconds."""
        time.sleep(min(self._back_off.next(), timeout))

    def close(self, timeout: float) -> None:
        """Close all lanes and wait until both sides of each have said so.

        Raises:
            RingTimeout: the time is over; the text names the lanes.
        """
        deadline = time.monotonic() + timeout
        for lane in list(self._lanes):
            self.close_lane(lane)
        while self._lanes:
            if time.monotonic() > deadline:
                lanes = ", ".join(map(str, self._lanes))
                raise RingTimeout(f"node {self._node} waited {timeout:g} s for the makers to end the lanes {lanes}")
            if not self.step():
                self.wait(timeout)

    def _step_lane(self, waiting: list[_Received]) -> bool:
        received = waiting[0]
        if received.inlets is None:
            return self._admit(received)
        happened = False
        for inlet in received.inlets:
            if received.stopping:
                inlet.stop()
            happened |= inlet.step()
        if all(inlet.is_closed() for inlet in received.inlets):
            waiting.pop(0)
            return True
        return happened

    def _admit(self, received: _Received) -> bool:
        """Open the lane of this node if it is idle, and begin to receive."""
        spec = received.spec
        lane = self._ring.lanes[spec.lane]
        if received.since is None:
            received.since = time.monotonic()
        if not lane.is_idle and time.monotonic() - received.since < self._patience:
            return False
        writers = self._nodes.writers(self._node, spec)
        lane.open(spec.layout, spec.readers[self._node], spec.generation, writers, spec.samples, timeout=0.0)
        received.inlets = [self._inlet(spec, maker) for maker in self._nodes.remote_makers(self._node, spec)]
        return True

    def _inlet(self, spec: LaneSpec, maker: int) -> Inlet:
        assert self._comm is not None
        writer = self._ring.lanes[spec.lane].writer(maker, spec.layout, spec.generation)
        return Inlet(self._comm, self._nodes.makers[maker], spec.lane, writer)


class _Received:
    """One opening of a lane on this node."""

    def __init__(self, spec: LaneSpec) -> None:
        self.spec = spec
        self.since: float | None = None  # when it was first tried to open it
        self.inlets: list[Inlet] | None = None  # None until the lane is open
        self.stopping = False
