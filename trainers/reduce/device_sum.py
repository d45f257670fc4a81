"""Sums that never leave the devices: their own messages carry the chunks, and they add them in today's order.

Additions of tensors are IEEE 754's on devices, too, so the bits are those of a sum on the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from trainers.device.own_device import select, with_index
from trainers.messages.device_channel import DeviceChannel
from trainers.messages.group import Group
from trainers.reduce.communicators import Communicators
from trainers.reduce.order import chunks
from trainers.reduce.rounds import Rounds

_BAND = 64 << 20
"""Bytes of a worker's vector that go round together: so much of each one's comes to a device that keeps none there."""


class DeviceSum:
    """The sums of `trainers.reduce.adder.InOrder` from device to device; on CPUs over gloo.

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
    def is_meeting(self) -> bool:
        """Never: `start` waits (`trainers.reduce.until_met` does not)."""
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
            self._channel.met()

    @torch.no_grad()
    def sum(self, vectors: Sequence[Tensor]) -> Tensor:
        """Begin the sum over all virtual workers: in the first vector, once `complete` has returned."""
        if self._channel is None:
            raise RuntimeError("devices have not met; take steps inside Trainer.adding()")
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
    def bring(self, tensors: Sequence[Tensor], origin: int) -> None:
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
