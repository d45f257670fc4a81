"""One for each node: opens the node's lanes, receives what preprocessors of other nodes make, and passes it on."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from preprocess.making.back_off import BackOff
from preprocess.making.broadcast import Inlet, RemoteNode
from preprocess.making.maker_portion import MakerPortion
from preprocess.making.nodes import NodeMap
from preprocess.making.traffic import TrafficCounter
from preprocess.ring.ring import Ring
from preprocess.samples.errors import RingTimeout
from preprocess.samples.order import EpochOrders
from preprocess.samples.owners import LanePortions
from preprocess.samples.stream import LaneSpec

if TYPE_CHECKING:
    from mpi4py import MPI

_KEPT_ORDERS = 2  # of a lane that makers fill together: the epoch that it carries, and the one that it comes to


class SlotReceiver:
    """Opens the lanes of one node, fills them with the slots that other nodes send, and passes these on.

    The caller drives it, most simply in a thread of the node's lowest rank: `step` until it returns False, then
    `wait`, and its own messages in between. Nothing blocks: openings and closings are finished by later steps.

    Args:
        ring: the ring of this node.
        node: number of this node.
        nodes: where the preprocessors and receivers are.
        comm: communicator for slots and nothing else, the same as the preprocessors'; MPI_THREAD_MULTIPLE is needed
            if another thread of this process uses MPI.
        patience: seconds that an opening may take.

    Attributes:
        received: what came in, by (lane, preprocessor that made it).
        sent: slots that were passed on, by (lane, node).
    """

    def __init__(self, ring: Ring, node: int, nodes: NodeMap, comm: MPI.Comm | None, patience: float = 60.0) -> None:
        self._ring, self._node, self._nodes, self._comm = ring, node, nodes, comm
        self._patience = patience
        self._lanes: dict[int, list[_Received]] = {}
        self.received, self.sent = TrafficCounter(), TrafficCounter()
        self._back_off = BackOff()
        self._lost: set[int] = set()  # readers that will never come
        self._lost_writers: set[int] = set()

    def open_lane(self, spec: LaneSpec) -> None:
        """Open a lane on this node, as soon as the users of its last opening have gone."""
        self._lanes.setdefault(spec.lane, []).append(_Received(spec))

    def close_lane(self, lane: int) -> None:
        """Receive no more of a lane for this node's readers; nodes behind it in a chain still get what they want.

        It also closes by itself when no reader here or behind is left, or its makers are through.
        """
        for received in self._lanes.get(lane, []):
            received.stopping = True

    def dismiss(self, reader: int) -> None:
        """Let nobody wait for a reader of this node that is lost, on any lane, now or later."""
        self._lost.add(reader)
        for lane in self._ring.lanes:
            lane.dismiss(reader)

    def dismiss_writer(self, writer: int) -> None:
        """Let nobody wait for a preprocessor of this node that is lost, on any lane that is open or still to open."""
        self._lost_writers.add(writer)
        self._ring.control.bury_writer(writer)

    def replace_writer(self, writer: int) -> None:
        """Let another process take a lost preprocessor's place, on lanes that are opened after this one."""
        self._lost_writers.discard(writer)
        for lane in self._ring.lanes:
            lane.dismiss_writer(writer)
        for waiting in self._lanes.values():
            for received in waiting:
                received.without.add(writer)

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

    def wait(self, timeout: float, rest: Callable[[float], object] = time.sleep) -> None:
        """Rest a little, at most so many seconds; so many where no lane is open."""
        rest(min(self._back_off.next(), timeout) if self._lanes else timeout)

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
                lanes = ", ".join(f"{lane} (on {waiting[0].awaited()})" for lane, waiting in self._lanes.items())
                raise RingTimeout(f"node {self._node} waited {timeout:g} s for the end of lane {lanes}")
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
        readers = spec.readers.get(self._node, ())
        lane.open(
            spec.layout, readers, spec.generation, writers, spec.samples, 0.0,
            makers=spec.makers, divided=spec.divided, ahead=spec.ahead,
        )  # fmt: skip
        for reader in self._lost:
            lane.dismiss(reader)
        for writer in self._lost_writers:
            self._ring.control.bury_writer(writer)
        for writer in received.without:
            lane.dismiss_writer(writer)
        portions = self._portions(spec)
        received.inlets = [self._inlet(spec, maker, portions) for maker in self._nodes.remote_makers(self._node, spec)]
        return True

    def _portions(self, spec: LaneSpec) -> LanePortions | None:
        """Which rows of its slots come from whom, where makers fill them together."""
        if not spec.divided:
            return None
        orders = EpochOrders(spec.itinerary.length, _KEPT_ORDERS, spec.blocks)
        return LanePortions(spec, self._ring.shape.slot_samples, self._ring.shape.writers, orders)

    def _inlet(self, spec: LaneSpec, maker: int, portions: LanePortions | None) -> Inlet:
        assert self._comm is not None
        nodes, lane = self._nodes, spec.lane
        portion = None if portions is None else MakerPortion(portions, maker)
        return Inlet(
            self._comm,
            nodes.sender(maker, self._node, spec),
            nodes.channel(maker, lane),
            self._ring.lanes[lane].writer(maker, spec.layout, spec.generation),
            self._next_node(spec, maker, portion),
            partial(self.received.count, lane, maker),
            portion,
        )

    def _next_node(self, spec: LaneSpec, maker: int, portion: MakerPortion | None) -> RemoteNode | None:
        assert self._comm is not None
        node = self._nodes.next_node(maker, self._node, spec)
        if node is None:
            return None
        channel = self._nodes.channel(maker, spec.lane)
        on_sent = partial(self.sent.count, spec.lane, node)
        return RemoteNode(self._comm, node, self._nodes.receivers[node], channel, on_sent, portion)


class _Received:
    """One opening of a lane on this node."""

    def __init__(self, spec: LaneSpec) -> None:
        self.spec = spec
        self.since: float | None = None  # when it was first tried to open it
        self.inlets: list[Inlet] | None = None  # None until the lane is open
        self.stopping = False
        self.without: set[int] = set()  # writers that were lost before they could fill it, and are others now

    def awaited(self) -> str:
        """Return on whom the end waits."""
        if self.inlets is None:
            return "the users of its last opening"
        return ", ".join(inlet.awaited() for inlet in self.inlets if not inlet.is_closed())
