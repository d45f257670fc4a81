"""Sums that never leave the devices: the ring of `trainers.reduce.ordered_reduce` in rounds, over their own messages.

Additions of tensors are IEEE 754's on devices, too, so the bits are those of a sum on the host. A device adds far
faster than a network brings, so nothing is gained by adding one segment while the next travels: in a round all members
send and receive at once, then all add, on one stream, whose order is all that there is to wait for.

A communicator takes NCCL tenths of a second and memory on each device, and groups form, part and move all the time. So
communicators are kept for groups that form again with the same members, and a group that has just formed sums over
hosts until its devices are connected: a sum has the same bits either way.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor

from trainers.device.device_streams import select, with_index
from trainers.messages.group import Group
from trainers.messages.torch_backend import DeviceChannel, listening_store
from trainers.messages.transport import Interrupted, PeerFailed, PeerSilent
from trainers.reduce.ordered_reduce import OrderedReduce, Reducer, chunks, fold, home_chunks, ranks_of_fold


@dataclass(frozen=True)
class DeviceReducers:
    """Makes reducers of groups whose members send from device to device; one alone sends to nobody."""

    communicators: Communicators

    def __call__(self, group: Group, virtual_workers: int, device: torch.device) -> Reducer:
        if group.size == 1:
            return OrderedReduce(group, virtual_workers, device)
        return HostThenDeviceReduce(group, virtual_workers, device, self.communicators)


class HostThenDeviceReduce:
    """`OrderedReduce` until the members' devices have met, then `DeviceReduce`.

    The master says after each step whether they go on from device to device, so all take the same way.
    """

    def __init__(self, group: Group, virtual_workers: int, device: torch.device, communicators: Communicators) -> None:
        self._group = group
        self._hosts = OrderedReduce(group, virtual_workers, device)
        self._devices = DeviceReduce(group, virtual_workers, device, communicators)
        self._used: Reducer = self._devices
        self._has_begun = False

    @property
    def place(self) -> torch.device:
        """That of the way that sums take now: the host while devices meet."""
        return self._used.place

    @property
    def is_connecting(self) -> bool:
        """Whether sums still go over hosts."""
        return self._used is self._hosts

    def prepare(self) -> None:
        """Begin to meet; all members call it at once. PeerFailed, PeerSilent."""
        self._devices.prepare()

    def start(self, at_once: bool = False) -> None:
        """Be able to add; all members call it at once. PeerFailed, PeerSilent.

        at_once: do not wait for devices that still meet; only at the first start: later, vectors may lie on devices.
        """
        self._devices.prepare()
        goes_over_hosts = at_once and not self._has_begun and not self._group.agree(int(self._devices.is_due))
        self._has_begun = True
        if goes_over_hosts:
            self._used = self._hosts
        else:
            self._devices.start()

    def sum(self, vectors: Sequence[Tensor]) -> Tensor:
        return self._used.sum(vectors)

    def share(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return self._used.share(tensors)

    def share_ahead(self, tensors: Sequence[Tensor]) -> list[Tensor] | None:
        return self._used.share_ahead(tensors)

    def receive(self, tensors: Sequence[Tensor], origin: int) -> None:
        """Fill tensors on the members' devices with those of member `origin` (see `DeviceReduce.receive`)."""
        self._devices.receive(tensors, origin)

    def follow(self) -> bool:
        return self._used.follow()

    def complete(self) -> None:
        """Return once all sums that were begun are there; the next ones go the way that is open then.

        PeerFailed, PeerSilent, Interrupted.
        """
        self._used.complete()
        if self.is_connecting and (self._group.agree(int(self._devices.is_due)) or self._devices.has_failed):
            self._devices.start()
            self._used = self._devices

    def take_waited(self) -> float:
        """Return the seconds spent waiting for other members since the last call."""
        return self._hosts.take_waited() + self._devices.take_waited()

    def interrupt(self) -> None:
        """End the waits of this member's other threads, now and from now on."""
        self._group.interrupt()

    def stop(self, together: bool) -> None:
        """Keep the communicator, if all members do, once they have met: nobody leaves one that others still make."""
        if self.is_connecting and together:
            together = self._have_met()
        self._used = self._devices
        self._devices.stop(together)

    def _have_met(self) -> bool:
        """Wait until the devices have met; whether they did. All steps are done, so nobody fails if they did not."""
        try:
            self._devices.start()
        except (PeerFailed, PeerSilent, Interrupted):
            return False
        return True


_BAND = 64 << 20
"""Bytes of a worker's vector that go round together: so much of each one's comes to a device that keeps none there."""


class DeviceReduce:
    """The sums of `trainers.reduce.ordered_reduce.OrderedReduce` from device to device; on CPUs over gloo.

    device: this member's. communicators: this process's.
    """

    def __init__(self, group: Group, virtual_workers: int, device: torch.device, communicators: Communicators) -> None:
        self._group, self._ranks, self._communicators = group, virtual_workers, communicators
        self.place = self._device = device if device.type == "cpu" else with_index(device)
        self._blocks = group.blocks(virtual_workers)
        self._module: Any = None if device.type == "cpu" else torch.get_device_module(device)
        self._side: Any = None if self._module is None else self._module.Stream(device=self._device)
        self._channel: DeviceChannel | None = None
        self._reaches_host = False  # whether a sum that was begun is to go there
        self._waited = 0.0

    @property
    def is_due(self) -> bool:
        """Whether `start` returns at once, with an error perhaps, or the members have met for longer than they may."""
        return self._channel is not None and self._channel.is_due

    @property
    def has_failed(self) -> bool:
        """Whether this member could not meet the others, which `start` says."""
        return self._channel is not None and self._channel.has_failed

    @property
    def is_connecting(self) -> bool:
        """Never: `start` waits (`trainers.reduce.device_reduce` does not)."""
        return False

    def prepare(self) -> None:
        """Take the members' communicator, unless it is taken; all members call it at once. PeerFailed, PeerSilent."""
        if self._channel is None:
            with self._beside():
                self._channel = self._communicators.take(self._group, self._device)

    def start(self, at_once: bool = False) -> None:
        """Have met the other members; all members call it at once. PeerFailed, PeerSilent."""
        self.prepare()
        assert self._channel is not None
        with self._beside():
            self._channel.connected()

    @torch.no_grad()
    def sum(self, vectors: Sequence[Tensor]) -> Tensor:
        """Begin the sum over all virtual workers: in the first vector, once `complete` has returned."""
        if self._channel is None:
            raise RuntimeError("devices have not met; take steps inside Trainer.reducing()")
        rounds = Rounds(self._blocks, self._group.index, self._channel.exchange)
        with self._beside():
            for slices in _bands(vectors[0], self._ranks):
                if vectors[0].device == self._device:
                    rounds.sum(vectors, slices)
                else:
                    self._reaches_host = True
                    self._sum_staged(rounds, vectors, slices)
        return vectors[0]

    @torch.no_grad()
    def share(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return copies of the master's tensors, which lie on the members' devices. PeerFailed, PeerSilent.

        They have come: else the device's own stream would wait for the master, and with it all that reads from there,
        which hears of no member that gives up.
        """
        if self._channel is None or not tensors:
            return self._group.bcast_copies(tensors)
        shared = self.share_ahead(tensors)
        with self._on_side():
            self._waited += self._channel.settle()  # they come
        return shared

    @torch.no_grad()
    def share_ahead(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Begin `share`, in one message; the copies are there once `complete` has returned."""
        if not tensors:
            return []
        assert self._channel is not None
        order = sorted(range(len(tensors)), key=lambda place: -tensors[place].element_size())  # so all are aligned
        octets = [tensors[place].reshape(-1).view(torch.uint8) for place in order]
        flat = torch.cat(octets)
        with self._beside():
            self._channel.broadcast(flat)
        parts = flat.split([part.numel() for part in octets])
        shared = {place: part.view(tensors[place].dtype) for place, part in zip(order, parts)}
        return [shared[place].view(tensor.shape) for place, tensor in enumerate(tensors)]

    @torch.no_grad()
    def receive(self, tensors: Sequence[Tensor], origin: int) -> None:
        """Fill tensors on the members' devices with those of member `origin`. PeerFailed, PeerSilent, Interrupted."""
        assert self._channel is not None
        with self._beside():
            for tensor in tensors:
                if tensor.numel():
                    flat = tensor.contiguous().view(-1)
                    self._channel.broadcast(flat, origin)
                    if not tensor.is_contiguous():
                        tensor.copy_(flat.view(tensor.shape))
            self._waited += self._channel.settle()  # all have come

    def follow(self) -> bool:
        """Let the device's own stream wait for the sums that were begun; not where some are to go to the host."""
        if self._module is None or self._reaches_host:
            return False
        self._module.current_stream(self._device).wait_stream(self._side)
        return True

    def complete(self) -> None:
        """Return once all sums that were begun are there. PeerFailed, PeerSilent, Interrupted."""
        assert self._channel is not None
        with self._on_side():
            self._waited += self._channel.settle()  # they are summed
        self._reaches_host = False

    def take_waited(self) -> float:
        """Return the seconds spent in `complete` since the last call."""
        waited, self._waited = self._waited, 0.0
        return waited

    def interrupt(self) -> None:
        """End the waits of this member's other threads, now and from now on."""
        self._group.interrupt()

    def stop(self, together: bool) -> None:
        """Keep the communicator, if all members do: after a failure it is of no use."""
        channel, self._channel = self._channel, None
        if channel is None:
            return
        if together:
            self._communicators.keep(self._group, channel)
        else:
            self._communicators.give_up(channel)

    def _sum_staged(self, rounds: Rounds, vectors: Sequence[Tensor], slices: Sequence[slice]) -> None:
        """Let the vectors' parts come from pinned memory, and the sum go back there."""
        packed = _packed(slices)
        staged = [_gathered(vector, slices, packed).to(self._device, non_blocking=True) for vector in vectors]
        rounds.sum(staged, packed)
        for where, there in zip(slices, packed):
            vectors[0][where].copy_(staged[0][there], non_blocking=True)

    @contextmanager
    def _beside(self) -> Iterator[None]:
        """Work on the side stream, after what the thread's own stream has to do so far, whichever thread this is."""
        if self._module is not None:
            select(self._device)
            self._side.wait_stream(self._module.current_stream(self._device))
        with self._on_side():
            yield

    @contextmanager
    def _on_side(self) -> Iterator[None]:
        """Work on the side stream, whatever the thread's own stream does."""
        with nullcontext() if self._module is None else self._module.stream(self._side):
            yield


def _bands(vector: Tensor, ranks: int) -> Iterator[list[slice]]:
    """Give the chunks of a vector, cut into parts that together fill a band."""
    whole = chunks(vector.numel(), ranks, vector.element_size())
    width = max(1, _BAND // (ranks * vector.element_size()))
    for start in range(0, whole[0].stop, width):
        yield [
            slice(min(chunk.start + start, chunk.stop), min(chunk.start + start + width, chunk.stop)) for chunk in whole
        ]


def _gathered(vector: Tensor, slices: Sequence[slice], packed: Sequence[slice]) -> Tensor:
    """Return parts of a pinned vector where `packed` says: in place where they touch."""
    if packed[-1].stop == slices[-1].stop - slices[0].start:
        return vector[slices[0].start : slices[-1].stop]
    gathered = torch.empty(packed[-1].stop, dtype=vector.dtype, pin_memory=True)
    for where, there in zip(slices, packed):
        gathered[there] = vector[where]
    return gathered


def _packed(slices: Sequence[slice]) -> list[slice]:
    """Return where the parts are once they lie one behind another; they touch only if they did before.

    Other members send them as they lie, and what touches travels as one.
    """
    packed, end, last = [], 0, slices[0].start
    for where in slices:
        end += where.start != last
        packed.append(slice(end, end + where.stop - where.start))
        end, last = packed[-1].stop, where.stop
    return packed


Exchange = Callable[[Sequence[Tensor], Sequence[Tensor]], None]
"""Sends flat tensors to the trainer before this one, and fills others from the one after it."""


class Rounds:
    """The ordered sum over all virtual ranks, for the trainer that holds `blocks[index]` of them, of two or more."""

    def __init__(self, blocks: Sequence[range], index: int, exchange: Exchange) -> None:
        self._blocks, self._index, self._own = list(blocks), index, blocks[index]
        self._ranks = blocks[-1].stop
        self._exchange = exchange

    @torch.no_grad()
    def sum(self, vectors: Sequence[Tensor], slices: Sequence[slice]) -> None:
        """Leave the sum over all virtual ranks in the first vector.

        vectors: flat tensors of the own ranks, in rank order. slices: where the chunks are, or the same parts of all
        chunks; what else there is stays. Parts of neighbouring chunks that touch travel as one: they must touch on all
        members or on none.
        """
        result, home = vectors[0], home_chunks(self._own, self._ranks)
        for chunk in home:
            first = ranks_of_fold(chunk, self._ranks)[0]
            self._add(vectors, [slices[chunk]], range(first, self._own.start - 1, -1))
        outgoing = home
        for hop in range(1, len(self._blocks)):
            incoming = home_chunks(self._block(hop), self._ranks)
            arrived = self._turn(result, _whole(slices, outgoing), _whole(slices, incoming))
            self._add(vectors, _whole(slices, incoming), self._own[::-1], arrived)
            outgoing = incoming
        leaving, coming = ([slices[chunk] for chunk in chunks[:-1]] for chunks in (outgoing, home))
        arrived = self._turn(result, leaving, coming)
        for chunk, room in zip(home[:-1], arrived):
            self._add(vectors, [slices[chunk]], range(self._own.stop - 1, chunk - 1, -1), [room])
        for hop in range(1, len(self._blocks)):
            there, here = (_whole(slices, self._block(number)) for number in (hop - 1, hop))
            self._exchange([result[where] for where in there], [result[where] for where in here])

    def _block(self, hop: int) -> range:
        return self._blocks[(self._index + hop) % len(self._blocks)]

    def _turn(self, result: Tensor, leaving: Sequence[slice], coming: Sequence[slice]) -> list[Tensor]:
        """Send parts of the result; return what came."""
        rooms = [torch.empty_like(result[where]) for where in coming]
        self._exchange([result[where] for where in leaving], rooms)
        return rooms

    def _add(
        self, vectors: Sequence[Tensor], places: Sequence[slice], ranks: range, arrived: Sequence[Tensor] = ()
    ) -> None:
        """Add own ranks, in this order, to what arrived, or from nothing."""
        for number, where in enumerate(places):
            terms = [vectors[rank - self._own.start][where] for rank in ranks]
            begun = [arrived[number]] if arrived else []
            room = begun[0] if begun else torch.empty_like(terms[0])
            fold([*begun, *terms], vectors[0][where], room)


def _whole(slices: Sequence[slice], chunks: Sequence[int]) -> list[slice]:
    """The parts of a vector that some chunks take; those that touch become one."""
    return list(_joined([slices[chunk] for chunk in chunks]))


def _joined(parts: Sequence[slice]) -> Iterator[slice]:
    begun: slice | None = None
    for part in parts:
        if begun is not None and begun.stop == part.start:
            begun = slice(begun.start, part.stop)
            continue
        if begun is not None:
            yield begun
        begun = part
    if begun is not None:
        yield begun


_MOST = 8


_STORE_SECONDS = 300.0


_LAST_SECONDS = 5.0
"""For so long does an end wait for devices that still meet: a process that ends under a meeting is aborted by torch."""


class Communicators:
    """This process's ends, by the ranks of their members, the master first.

    lost: gives the ranks that are known to be gone. most: how many are kept; the one that was used last goes last.
    """

    def __init__(self, lost: Callable[[], Collection[int]] = tuple, most: int = _MOST) -> None:
        self._lost, self._most = lost, most
        self._kept: dict[tuple[int, ...], DeviceChannel] = {}
        self._unmet: list[DeviceChannel] = []
        self._given_up: list[DeviceChannel] = []  # what they hold is given back when nobody waits for this member
        self._stores: dict[bool, tuple[Any, str]] = {}  # where groups meet whose master this is: of one host, or more
        self._numbers = count()

    def take(self, group: Group, device: torch.device) -> DeviceChannel:
        """Return the one of the group's members, kept or new; all members call it at once. PeerFailed, PeerSilent.

        The members of a new one have begun to meet (see `DeviceChannel.connected`).
        """
        lost = frozenset(self._lost())
        for ranks in [ranks for ranks in self._kept if not lost.isdisjoint(ranks)]:
            self.give_up(self._kept.pop(ranks))
        mine = self._kept.pop(group.ranks, None)
        try:
            name = self._agreed(group, mine.name if mine else "")
        except BaseException:
            if mine:
                self.give_up(mine)
            raise
        if mine and mine.name == name:
            mine.transport = group.transport
            return mine
        if mine:
            self.give_up(mine)
        self._keep_at_most(self._most - 1)
        made = DeviceChannel(name, group.transport, device)
        self._unmet = [*(channel for channel in self._unmet if channel.is_connecting), made]
        return made

    def keep(self, group: Group, channel: DeviceChannel) -> None:
        """Take one back that its members leave together, with no message under way; others are to be given up."""
        self._kept[group.ranks] = channel
        self._given_up = []

    def give_up(self, channel: DeviceChannel) -> None:
        """Abort one that is of no use any more: its other members shall hear of it at once, and form anew."""
        channel.abort()
        self._given_up.append(channel)

    def end(self) -> None:
        """Abort all that are kept, and end the meetings under way: without its store none goes on."""
        self._keep_at_most(0)
        self._stores.clear()
        until = time.monotonic() + _LAST_SECONDS
        for channel in self._unmet:
            channel.stop_connecting(until - time.monotonic())
        self._unmet, self._given_up = [], []

    def _keep_at_most(self, most: int) -> None:
        while len(self._kept) > most:
            self.give_up(self._kept.pop(next(iter(self._kept))))

    def _agreed(self, group: Group, name: str) -> str:
        """Return the name of the communicator that all members use now."""
        told = [part.decode().split() for part in group.gather_bytes(f"{socket.gethostname()} {name}".encode())]
        if group.is_master and (not name or any(words[1:] != [name] for words in told)):
            on_one_host = len({words[0] for words in told}) == 1
            if on_one_host not in self._stores:
                self._stores[on_one_host] = listening_store(on_one_host, _STORE_SECONDS)
            name = f"{self._stores[on_one_host][1]}/{next(self._numbers)}"
        return group.bcast_bytes(name.encode()).decode()
