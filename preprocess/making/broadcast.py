"""Between nodes: each slot goes from node to node along a chain, so that it enters and leaves every node at most once.

The chain of a preprocessor begins at its node and goes through all others that read the lane, see `NodeMap.chain`. A
node receives a slot into its own ring, where its readers read it, and sends it on from there: a pipelined broadcast
(the linear pipeline of Sanders, Speck and Traeff, Parallel Computing 35, 2009). However many nodes there are, each
sends the stream once. In a tree every inner node would send it as often as it has children, which makes a stream that
the network limits that many times slower; the n - 1 hops that a chain takes instead of log n are paid once, when a lane
is opened, since after that the rings along it stay full. `Ibcast` is no way: all nodes would have to call it in the
same order for lanes whose readers differ, one that is late would hold up all lanes, and it is not bounded by the free
slots of those that receive.

The stream of one lane, from one preprocessor, over one link of its chain is a conversation that both sides end:

* the sender sends each slot as two messages, inputs and targets, and at its end two empty ones; of a slot that all
  makers fill together it sends a copy of its maker's samples, and nothing if there are none; of ragged samples it sends
  their lengths and their bytes, and the message is as long as these are;
* the receiver sends one empty message, "enough", when neither its readers nor the nodes behind it need more, or when it
  got the end; from then on it drops what comes, until the end has come;
* the sender sends the end when the stream is over (the maker was told to close, or the end came from before), or on
  "enough".

So the end travels forwards and "enough" backwards. A node whose own readers have all left, or that was told to close
the lane, goes on passing slots to those behind it until they have said "enough", from two buffers of its own: what its
readers still hold is never written, and holds up nobody any more.

Exactly one end and one "enough" pass over each link each time. So every message that was sent is received, wherever the
two sides stood, and once both have said so the link can carry another stream under the same tags: messages between two
ranks with one tag keep their order (MPI-4.1, 3.5).

Inputs are sent synchronously: the send is complete only once its receive was posted, and that is done only for a free
slot. A send holds its slot as a reader does. So no more is under way than the rings hold, also of slots that are small
enough for MPI to buffer, and a slow node makes those before it wait when its ring is full. Links do not wait for each
other, and a slot that some reader awaits has room in every ring on its way, as long as it is the earliest that anybody
awaits; so no circle of chains can block. MPI is only tested, never waited in: a waiting MPI call would spin on a core
that computes.

The portion of a divided slot that one maker fills travels as a copy: a place in the ring is one maker's in this round
and another's in the next. That one writes there as soon as this node's readers have released it, whatever message is
still on its way; so the copy is taken before they get the slot.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from preprocess.ring.lane_memory import PassedOn, RaggedSlot
from preprocess.ring.ring import LaneWriter, Ring, Slot
from preprocess.samples.errors import RingTimeout
from preprocess.samples.layout import Array, Indices
from preprocess.samples.order import EpochOrders
from preprocess.samples.stream import LanePortions, LaneSpec

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class Traffic:
    """Slots that crossed the network, and the bytes of their samples; what MPI and the network add is not in it."""

    slots: int = 0
    bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.slots + other.slots, self.bytes + other.bytes)


class TrafficCounter:
    """Adds traffic up by (lane, other side). One thread counts; others may look."""

    def __init__(self) -> None:
        self._totals: dict[tuple[int, int], Traffic] = {}

    def count(self, lane: int, other: int, size: int) -> None:
        """Add one slot of `size` bytes."""
        before = self._totals.get((lane, other), Traffic())
        self._totals[lane, other] = before + Traffic(1, size)

    @property
    def totals(self) -> Mapping[tuple[int, int], Traffic]:
        """The counts so far, by (lane, other side)."""
        return dict(self._totals)


@dataclass(frozen=True)
class NodeMap:
    """The ranks that make and receive slots, counted in the communicator that carries slots between nodes.

    Attributes:
        makers: the rank of each preprocessor.
        maker_nodes: the node of each preprocessor.
        receivers: for each node, the rank whose `SlotReceiver` opens its lanes, receives there and passes on.
    """

    makers: tuple[int, ...]
    maker_nodes: tuple[int, ...]
    receivers: tuple[int, ...]

    def writers(self, node: int, spec: LaneSpec) -> list[int]:
        """Return the writers of a lane on a node: all its makers where it is read, else those that live there."""
        makers = [(maker, home) for maker, home in enumerate(self.maker_nodes) if spec.is_made_by(maker)]
        return [maker for maker, home in makers if node in spec.readers or home == node]

    def remote_makers(self, node: int, spec: LaneSpec) -> list[int]:
        """Return the preprocessors of other nodes whose slots of a lane come to a node."""
        return [maker for maker in self.writers(node, spec) if self.maker_nodes[maker] != node]

    def chain(self, maker: int, spec: LaneSpec) -> list[int]:
        """Return the nodes that a preprocessor's slots of a lane pass through, its own first, then all that read it.

        They follow each other in a circle from its own on: the chains of preprocessors on different nodes begin and
        end at different nodes, and every link of the circle carries about as much.
        """
        home, count = self.maker_nodes[maker], len(self.receivers)
        others = sorted(spec.readers.keys() - {home}, key=lambda node: (node - home) % count)
        return [home, *others]

    def next_node(self, maker: int, node: int, spec: LaneSpec) -> int | None:
        """Return the node to which a node of the chain passes the slots on, None at its end."""
        chain = self.chain(maker, spec)
        after = chain.index(node) + 1
        return chain[after] if after < len(chain) else None

    def sender(self, maker: int, node: int, spec: LaneSpec) -> int:
        """Return the rank that sends a preprocessor's slots to a node: itself, or the receiver of the node before."""
        chain = self.chain(maker, spec)
        before = chain[chain.index(node) - 1]
        return self.makers[maker] if before == chain[0] else self.receivers[before]

    def channel(self, maker: int, lane: int) -> int:
        """Return a number for a preprocessor's slots of a lane, unlike any other pair's."""
        return lane * len(self.makers) + maker


_SHORTEST, _LONGEST = 1e-4, 5e-3


class BackOff:
    """Sleeps of 0.1 ms to 5 ms that double as long as nothing happens."""

    def __init__(self) -> None:
        self._seconds = _SHORTEST

    def next(self) -> float:
        """Return the seconds to sleep now."""
        now, self._seconds = self._seconds, min(2 * self._seconds, _LONGEST)
        return now

    def reset(self) -> None:
        """Begin again with the shortest, because something happened."""
        self._seconds = _SHORTEST


@dataclass(frozen=True)
class MakerPortion:
    """One maker's rows of the slots of a lane."""

    portions: LanePortions
    maker: int

    def rows(self, sequence: int) -> Indices | None:
        """The rows of a slot, ascending; None past the end of the lane, where only its end can come."""
        return None if self.portions.is_past_end(sequence) else self.portions.rows(self.maker, sequence)


Block = Array | RaggedSlot | PassedOn
"""Inputs or targets of a slot, and what is on its way past a node."""


def packed(block: Block, rows: Indices | None) -> Array:
    """Return the bytes of a block of samples, or a copy of some rows'; of ragged ones lengths too, see `RaggedSlot`."""
    if not isinstance(block, np.ndarray):
        return block.packed(rows)
    whole = block if rows is None else np.ascontiguousarray(block[rows])
    return whole.reshape(-1).view(np.uint8)


def _room_for(block: Block, rows: Indices | None) -> Array:
    """Return the memory into which a block of samples, or some rows of it, is received."""
    if not isinstance(block, np.ndarray):
        return block.room(rows)
    return packed(block, None) if rows is None else np.empty(len(rows) * block[0].nbytes, np.uint8)


def unpack(received: Array, block: Block, rows: Indices | None) -> None:
    """Put what was received into its rows; it lies there already where it is all of the block."""
    if not isinstance(block, np.ndarray):
        block.unpack(received, rows)
    elif rows is not None:
        block[rows] = received.view(block.dtype).reshape(len(rows), *block.shape[1:])


def empty_like(block: Any) -> Block:
    """Return memory for a block like this one, outside the ring."""
    return PassedOn(block.room(None)) if isinstance(block, RaggedSlot) else np.empty_like(block)


class RemoteNode:
    """The next node of a chain as a holder of slots: the sender's side of the conversation.

    Args:
        comm: communicator for slots and nothing else.
        node: the next node.
        rank: who receives there.
        channel: number of (lane, preprocessor), see `NodeMap.channel`.
        on_sent: called with the bytes of each slot.
        portion: what of each slot is sent; None: all of it.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        node: int,
        rank: int,
        channel: int,
        on_sent: Callable[[int], None],
        portion: MakerPortion | None = None,
    ) -> None:
        self._comm, self._node, self._rank = comm, node, rank
        self._tags, self._portion = _tags(channel), portion
        self._on_sent = on_sent
        self._sends: deque[list[MPI.Request]] = deque()
        self._sent = 0
        self._ended = False
        self._enough = comm.Irecv(_nothing(), rank, self._tags[2])
        self._said_enough = False

    @property
    def name(self) -> str:
        """Its name in errors."""
        return f"node {self._node} (received by rank {self._rank})"

    @property
    def sent(self) -> int:
        """Slots that were handed to it."""
        return self._sent

    def publish(self, slot: Slot) -> None:
        """Send the slot, unless the conversation is at its end."""
        self.send(slot.sequence, slot.inputs, slot.targets)

    def send(self, sequence: int, inputs: Block, targets: Array) -> None:
        """Send a slot's samples, unless the conversation is at its end; they are not to be written until released."""
        if self._ended:
            return
        rows = None if self._portion is None else self._portion.rows(sequence)
        self._sent += 1
        if rows is not None and not len(rows):
            self._sends.append([])
            return
        parts = packed(inputs, rows), packed(targets, rows)
        self._sends.append(
            [
                self._comm.Issend(parts[0], self._rank, self._tags[0]),
                self._comm.Isend(parts[1], self._rank, self._tags[1]),
            ]
        )
        self._on_sent(parts[0].nbytes + parts[1].nbytes)

    def has_released(self, slots: int) -> bool:
        """Say whether the sends of the first so many slots are complete."""
        self.progress()
        return self._sent - len(self._sends) >= slots or (self._ended and not self._sends)

    def wants_more(self) -> bool:
        """Say whether it has not yet said "enough"."""
        self.progress()
        return not self._said_enough

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
            self._sends.append([self._comm.Isend(_nothing(), self._rank, tag) for tag in self._tags[:2]])

    def progress(self) -> None:
        """Let MPI work, and answer "enough" with the end."""
        while self._sends and all(request.Test() for request in self._sends[0]):
            self._sends.popleft()
        if not self._said_enough and self._enough.Test():
            self._said_enough = True
            self.end()


class Inlet:
    """The receiver's side of the conversation about one preprocessor's slots of one lane; it also passes them on.

    Args:
        comm: communicator for slots and nothing else.
        rank: who sends: the preprocessor, or the receiver of the node before.
        channel: number of (lane, preprocessor), see `NodeMap.channel`.
        writer: fills that preprocessor's slots in the ring of this node.
        next_node: to which the slots are passed on, None at the chain's end.
        on_received: called with the bytes of each slot.
        portion: what of each slot comes; None: all of it.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        rank: int,
        channel: int,
        writer: LaneWriter,
        next_node: RemoteNode | None,
        on_received: Callable[[int], None],
        portion: MakerPortion | None = None,
    ) -> None:
        self._comm, self._rank, self._tags = comm, rank, _tags(channel)
        self._writer, self._next, self._on_received, self._portion = writer, next_node, on_received, portion
        self._taken = 0  # slots that came, and those of which nothing is to come
        if next_node is not None:
            writer.add_holder(next_node)
        self._buffers = _Buffers(next_node)
        self._receive: _Receive | None = None
        self._enough: MPI.Request | None = None
        self._stopped = self._ended = False

    def stop(self) -> None:
        """Take no more for this node's own readers, and say "enough" as soon as the nodes behind it have said so."""
        self._stopped = True

    def step(self) -> bool:
        """Do what can be done without waiting, and say whether something came in."""
        if self._next is not None:
            self._next.progress()
        if self._ended:
            return False
        read_here = self._is_read_here()
        if not read_here and not (self._next is not None and self._next.wants_more()):
            self._say_enough()
        if self._receive is None:
            self._receive = self._post(read_here)
        if self._receive is None or not self._receive.is_complete():
            return False
        self._accept(self._receive)
        return True

    def is_closed(self) -> bool:
        """Say whether both conversations are over and nothing of them is under way; the writer is closed then."""
        over = self._ended and self._enough is not None and self._enough.Test()
        if over and (self._next is None or self._next.has_left()):
            self._writer.close()
            return True
        return False

    def awaited(self) -> str:
        """Return on whom the end waits."""
        if self._ended and self._next is not None:
            return self._next.name
        return f"rank {self._rank}"

    def _is_read_here(self) -> bool:
        """Once it is not, it never is again."""
        if self._stopped or self._writer.deserted:
            return False
        return any(holder is not self._next for holder in self._writer.holders)

    def _post(self, read_here: bool) -> _Receive | None:
        """Receive into the next slot, or into a buffer if nobody reads here; None if neither is free."""
        if read_here:
            if not self._writer.has_space():
                return None
            slot = self._writer.next_slot
            return self._receive_into(slot.inputs, slot.targets, in_ring=True)
        buffer = self._buffers.free_one(self._writer.next_slot)
        return None if buffer is None else self._receive_into(*buffer, in_ring=False)

    def _receive_into(self, inputs: Block, targets: Array, in_ring: bool) -> _Receive:
        """Receive what is to come of the next slot; once "enough" was said, whatever still comes."""
        rows = None
        if self._portion is not None and self._enough is None:
            rows = self._portion.rows(self._writer.sequence(self._taken))
        return _Receive(self._comm, self._rank, self._tags, inputs, targets, in_ring, rows)

    def _accept(self, receive: _Receive) -> None:
        self._receive = None
        if receive.is_end:
            self._ended = True
            self._say_enough()
            if self._next is not None:
                self._next.end()
            return
        receive.unpack()
        self._on_received(receive.size)
        if receive.in_ring:
            self._writer.publish()
        elif self._next is not None:
            self._next.send(self._writer.sequence(self._taken), receive.inputs, receive.targets)
            self._buffers.lent()
        self._taken += 1

    def _say_enough(self) -> None:
        if self._enough is None:
            self._enough = self._comm.Isend(_nothing(), self._rank, self._tags[2])


class _Buffers:
    """Two slots outside the ring, used in turns: one is received while the other is sent on, or both are dropped."""

    def __init__(self, next_node: RemoteNode | None) -> None:
        self._next = next_node
        self._blocks: list[tuple[Block, Array]] = []
        self._lent_at = [0, 0]  # how many slots the next node must have released before the buffer is free
        self._turn = 0

    def free_one(self, like: Slot) -> tuple[Block, Array] | None:
        """Return the (inputs, targets) whose turn it is, None if they are still being sent."""
        if not self._blocks:
            self._blocks = [(empty_like(like.inputs), np.empty_like(like.targets)) for _ in range(2)]
        if self._next is not None and not self._next.has_released(self._lent_at[self._turn]):
            return None
        inputs, targets = self._blocks[self._turn]
        return (inputs if isinstance(inputs, np.ndarray) else empty_like(like.inputs)), targets

    def lent(self) -> None:
        """Note that the one whose turn it was is being sent; it is the other's turn now."""
        assert self._next is not None
        self._lent_at[self._turn] = self._next.sent
        self._turn = 1 - self._turn


class _Receive:
    """The two receives of one slot, of some rows of it, or of the end; none if no rows are to come."""

    def __init__(
        self,
        comm: MPI.Comm,
        rank: int,
        tags: tuple[int, int, int],
        inputs: Block,
        targets: Array,
        in_ring: bool,
        rows: Indices | None,
    ) -> None:
        from mpi4py import MPI

        self.inputs, self.targets, self.in_ring = inputs, targets, in_ring
        self._byte = MPI.BYTE
        self._status = MPI.Status()
        self.is_end = False
        self._rows, self._rooms = rows, [_room_for(block, rows) for block in (inputs, targets)]
        self.size = sum(room.nbytes for room in self._rooms)
        self._requests: list[MPI.Request] = []
        self._inputs_here = rows is not None and not len(rows)
        if not self._inputs_here:
            self._requests = [comm.Irecv(room, rank, tag) for room, tag in zip(self._rooms, tags)]

    def unpack(self) -> None:
        """Put what has come into its places in the slot."""
        for room, block in zip(self._rooms, (self.inputs, self.targets)):
            unpack(room, block, self._rows)

    def is_complete(self) -> bool:
        """Say whether both have come."""
        if not self._inputs_here and self._requests[0].Test(self._status):
            self._inputs_here = True
            count = self._status.Get_count(self._byte)
            self.is_end = count == 0
            self.size -= self._rooms[0].nbytes - count  # ragged samples take less than the largest ones
            self._rooms[0] = self._rooms[0][:count]
        return self._inputs_here and all(request.Test() for request in self._requests[1:])


def _tags(channel: int) -> tuple[int, int, int]:
    """Return a channel's tags for inputs, targets and "enough"."""
    return 3 * channel, 3 * channel + 1, 3 * channel + 2


def _nothing() -> Array:
    return np.empty(0, np.uint8)


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
            spec.layout,
            readers,
            spec.generation,
            writers,
            spec.samples,
            0.0,
            makers=spec.makers,
            divided=spec.divided,
            ahead=spec.ahead,
        )
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
        """The rows of its slots that come from each maker, where makers fill slots together."""
        if not spec.divided:
            return None
        orders = EpochOrders(spec.schedule.length, _KEPT_ORDERS, spec.blocks)
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
