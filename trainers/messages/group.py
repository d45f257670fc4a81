"""The trainers that train one job now.

The first is the master. Members talk in flat byte buffers, never in pickles, and every wait is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from trainers.device.device_streams import copies_of
from trainers.messages.transport import Alone, Parcel, PeerFailed, Pending, Transport, exchange
from trainers.state.tree import decode, encode, flatten, unflatten

if TYPE_CHECKING:
    from mpi4py import MPI

TIMEOUT_SECONDS = 300.0


def blocks_of(virtual_workers: int, members: int, shares: Sequence[int] = ()) -> list[range]:
    """Return each member's virtual ranks, which follow one another.

    shares: how many each member has, one or more (EasyScale, SC'23, 3.4: in proportion to its device's speed); not
        given, they are balanced, the larger blocks first (8 over 3: 3, 3, 2).
    """
    if not 1 <= members <= virtual_workers:
        raise ValueError(
            f"{members} trainers for {virtual_workers} virtual workers: give a job between 1 and "
            f"{virtual_workers} trainers"
        )
    size, larger = divmod(virtual_workers, members)
    given = list(shares) or [size + (member < larger) for member in range(members)]
    if len(given) != members or min(given) < 1 or sum(given) != virtual_workers:
        raise ValueError(
            f"shares {given} of {virtual_workers} virtual workers for {members} trainers: give each trainer one or "
            f"more, {virtual_workers} together"
        )
    starts = list(accumulate(given, initial=0))
    return [range(start, stop) for start, stop in zip(starts, starts[1:])]


class Group:
    """The members 0 .. size-1 of a group, from inside one of them.

    ranks: the members' ranks in the job; index: this member's place; size: how many there are.
    shares: how many virtual workers each member has; () if they are balanced.
    waited: seconds that this member's work stood still for its peers so far.
    A group is a context: it closes at the end, and tells the others when an error leaves it.
    After a failure it is of no use; the survivors form a new one, with another tag, as messages may still be under way.
    """

    def __init__(self, transport: Transport, ranks: Sequence[int], shares: Sequence[int] = ()) -> None:
        self._transport = transport
        self.ranks, self.shares = tuple(ranks), tuple(shares)
        self.index = transport.index
        self.size = transport.size
        self.waited = 0.0

    @classmethod
    def alone(cls) -> Group:
        """Return a group of one, without MPI."""
        return cls(Alone(), (0,))

    @classmethod
    def form(
        cls,
        comm: MPI.Intracomm,
        ranks: Sequence[int],
        tag: int,
        timeout: float = TIMEOUT_SECONDS,
        shares: Sequence[int] = (),
    ) -> Group:
        """Form a group of `ranks` of `comm`, its master first; all of them call this with the same arguments.

        tag: fresh for every group that is formed; `tag` and `tag + 1` are the group's on `comm` until it closes.
        timeout: seconds that any later wait may take, and the wait here. PeerSilent names who did not come.
        """
        # Importing it starts MPI, which a group of one does without.
        from trainers.messages.mpi import MpiTransport

        if comm.Get_rank() not in ranks or len(set(ranks)) != len(ranks):
            raise ValueError(
                f"rank {comm.Get_rank()} forms a group of ranks {list(ranks)}: each member once, "
                "and only members form it"
            )
        group = cls(MpiTransport(comm, ranks, tag=tag, timeout=timeout), ranks, shares)
        group.barrier()
        return group

    @classmethod
    def over(cls, transport: Transport) -> Group:
        """Return the group of a transport's members, such as a `TorchTransport`'s; they are named by their places."""
        return cls(transport, range(transport.size))

    @property
    def transport(self) -> Transport:
        """What carries the members' messages."""
        return self._transport

    @property
    def is_master(self) -> bool:
        """Whether this member speaks for the group."""
        return self.index == 0

    @property
    def any_thread(self) -> bool:
        """Whether another thread may talk to the members, while the one that formed the group does not."""
        return self._transport.any_thread

    def blocks(self, virtual_workers: int) -> list[range]:
        """Return the virtual ranks of each member (see `blocks_of`)."""
        return blocks_of(virtual_workers, self.size, self.shares)

    def block(self, virtual_workers: int) -> range:
        """Return the virtual ranks of this member."""
        return self.blocks(virtual_workers)[self.index]

    def neighbours(self) -> GroupNeighbours:
        """Return the members before and after this one, for a ring (see `trainers.reduce.ordered_reduce`)."""
        return GroupNeighbours(self._transport)

    def bcast(self, tensor: Tensor) -> None:
        """Fill `tensor` (contiguous, of the same size everywhere) with the master's, along a binomial tree."""
        landing = _bytes(tensor.view(-1))
        self._down(landing)
        if not self.is_master and tensor.device.type != "cpu":
            tensor.view(-1).view(torch.uint8).copy_(torch.from_numpy(landing))

    def bcast_copies(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return copies of the master's tensors; all members give some of the same shapes, dtypes and device."""
        if self.size == 1 or not tensors:
            return copies_of(tensors)
        flat = torch.cat([tensor.contiguous().view(-1).view(torch.uint8) for tensor in tensors])
        self.bcast(flat)
        parts = flat.split([tensor.numel() * tensor.element_size() for tensor in tensors])
        return [part.clone().view(tensor.dtype).view(tensor.shape) for part, tensor in zip(parts, tensors)]

    def bcast_bytes(self, data: bytes | None = None) -> bytes:
        """Return the master's bytes; the others give nothing."""
        length = self.agree(len(data) if self.is_master and data is not None else 0)
        memory = np.frombuffer(bytearray(data or b""), np.uint8) if self.is_master else np.empty(length, np.uint8)
        self._down(memory)
        return memory.tobytes()

    def agree(self, value: int = 0) -> int:
        """Return the master's integer (64 bits, signed)."""
        cell = np.array([value], dtype=np.int64)
        self._down(cell.view(np.uint8))
        return int(cell[0])

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return every member's bytes, in the members' order, on the master; an empty list elsewhere."""
        own = np.frombuffer(bytearray(data), dtype=np.uint8)  # some transports want memory that may be written
        length = np.array([own.size], dtype=np.int64)
        if not self.is_master:
            self._exchange([(0, length.view(np.uint8)), (0, own)], [])
            return []
        peers = range(1, self.size)
        lengths = [length.copy() for _ in peers]
        self._exchange([], [(peer, cell.view(np.uint8)) for peer, cell in zip(peers, lengths)])
        parts = [np.empty(int(cell[0]), dtype=np.uint8) for cell in lengths]
        self._exchange([], list(zip(peers, parts)))
        return [data, *(part.tobytes() for part in parts)]

    def bcast_tree(self, tree: Any = None) -> Any:
        """Return the master's nested data (`state.tree`); the others give nothing. Tensors arrive on the CPU."""
        structure, arrays = flatten(tree) if self.is_master else ("", {})
        header = json.dumps([structure, [[path, array.dtype.str, array.shape] for path, array in arrays.items()]])
        structure, entries = json.loads(self.bcast_bytes(header.encode()))
        if self.is_master:
            for array in arrays.values():
                self._down(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
            return tree
        arrays = {path: np.empty(shape, dtype) for path, dtype, shape in entries}
        for array in arrays.values():
            self._down(array.reshape(-1).view(np.uint8))
        return unflatten(structure, arrays)

    def gather_trees(self, tree: Any) -> list[Any]:
        """Return every member's nested data, in the members' order, on the master; an empty list elsewhere."""
        return [decode(data) for data in self.gather_bytes(encode(tree))]

    def barrier(self) -> None:
        """Return once every member has come."""
        self.gather_bytes(b"")
        self.agree()

    def check(self) -> None:
        """Raise PeerFailed if another member gave up; for members that wait for something else than their peers."""
        self._transport.check()

    def interrupt(self) -> None:
        """End the waits of this member's other threads, now and from now on: it is about to give up."""
        self._transport.interrupt()

    def abort(self, text: str) -> None:
        """Tell the others that this member gives up; their next wait raises PeerFailed with `text`."""
        self._transport.abort(text)

    def close(self) -> None:
        """Part, together: returns once every member has come to the same call."""
        self.barrier()
        self._transport.close()

    def become(self, other: Group) -> None:
        """Go on as `other`: the holders of this object are in that group from now on (see `trainers.job.resize`)."""
        self._transport, self.ranks, self.shares = other._transport, other.ranks, other.shares
        self.index, self.size = other.index, other.size

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.close()
        elif not isinstance(error, PeerFailed):  # the peer that failed has told everyone
            self.abort(f"{type(error).__name__}: {error}")

    def _exchange(self, sends: Sequence[Parcel], receives: Sequence[Parcel]) -> None:
        self.waited += exchange(self._transport, sends, receives)

    def _down(self, memory: np.ndarray) -> None:
        """Fill `memory` from the master: member i hears from i without its lowest bit, then tells its own subtree."""
        lowest = self.index & -self.index
        if lowest:
            self._exchange([], [(self.index - lowest, memory)])
        steps = [1 << bit for bit in range(self.size.bit_length()) if not lowest or 1 << bit < lowest]
        children = [self.index + step for step in reversed(steps) if self.index + step < self.size]
        self._exchange([(child, memory) for child in children], [])


class GroupNeighbours:
    """The two members beside this one in a ring: sends go to the one before it, receives come from the one after it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._before = (transport.index - 1) % transport.size
        self._after = (transport.index + 1) % transport.size
        self._waited = 0.0

    def send(self, outgoing: Tensor) -> Pending:
        """Begin to send a flat tensor on the CPU."""
        return self._transport.send(self._before, _bytes(outgoing))

    def receive(self, incoming: Tensor) -> Pending:
        """Begin to fill a flat tensor on the CPU."""
        return self._transport.receive(self._after, _bytes(incoming))

    def wait(self, pending: Sequence[Pending]) -> None:
        """Return once all are complete. PeerFailed, PeerSilent, Interrupted."""
        self._waited += self._transport.wait(pending)

    def take_waited(self) -> float:
        """Return the seconds spent in `wait` since the last call."""
        waited, self._waited = self._waited, 0.0
        return waited


def _bytes(tensor: Tensor) -> np.ndarray:
    """Return the bytes of a flat tensor on the host; the tensor's own memory where it is on the CPU."""
    return tensor.detach().cpu().view(torch.uint8).numpy()
