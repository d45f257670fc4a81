"""The virtual ring's messages from GPU to GPU, point to point over NCCL or RCCL.

Gradients are folded on the host, in `trainers.reduce.order`'s order: a segment goes from the host to its device, to the
device of the member before, and to that one's host.

Every edge of the ring, from a member to the one before it, is a process group of its own. The messages of a group
follow one another on one stream, so in a ring of two a send that shared a group with the receive from the same peer
would stand before it on both sides, and neither would ever end. Connecting an edge blocks both its ends: all members
connect theirs in the same order, so somebody can always go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from trainers.group import Beside
from trainers.messages.torch_backend import TorchTransport
from trainers.messages.transport import Interrupted, PeerFailed, PeerSilent, Pending, nap

_SECONDS_BETWEEN_CHECKS = 0.5


class _Message:
    """A segment under way. staging: where it is on the device; landing: on the host, of one that comes."""

    def __init__(self, peer: int, work: Any, staging: Tensor, landing: Tensor | None) -> None:
        self.peer = peer
        self.work = work
        self.staging: Tensor | None = staging
        self.landing = landing

    @property
    def done(self) -> bool:
        return self.work is None


class DeviceRing(Beside):
    """The two members beside this one, reached from device to device; for `Group.over(transport, DeviceRing(...))`.

    transport: what the members say else, and how one that gives up is heard of.
    device: this member's; no two members may have the same GPU. Messages go over what torch has for devices of its
    kind: NCCL or RCCL, XCCL, gloo between CPUs, or what the device's own package registered.
    """

    def __init__(self, transport: TorchTransport, device: torch.device | str) -> None:
        """All members call it at once. PeerFailed, PeerSilent."""
        super().__init__(transport)
        self._torch = transport
        self._device = torch.device(device)
        self._module: Any = None if self._device.type == "cpu" else torch.get_device_module(self._device)
        # Two streams: otherwise a segment that leaves would wait until one arrives.
        self._out, self._in = (self._module.Stream(device=self._device) if self._module else None for _ in range(2))
        self._edges: dict[int, Any] = {}
        transport.at_abort(self._abort)
        count = transport.store.add(f"rings/{transport.index}", 1)  # all members make their rings in the same order
        for edge in range(transport.size):
            if transport.index in (edge, (edge + 1) % transport.size):
                store = dist.PrefixStore(f"ring/{count}/{edge}", transport.store)  # type: ignore[attr-defined]
                self._connect(edge, store)

    def send(self, outgoing: Tensor) -> Pending:
        """Begin to send a flat tensor on the CPU to the member before this one."""
        return self._send(self._before, outgoing)

    def receive(self, incoming: Tensor) -> Pending:
        """Begin to fill a flat tensor on the CPU from the member after this one."""
        return self._receive(self._torch.index, incoming)

    def wait(self, pending: Sequence[Pending]) -> None:
        """Return once all are complete. PeerFailed, PeerSilent, Interrupted."""
        begin = time.perf_counter()
        for message in cast("Sequence[_Message]", pending):
            if message.work is not None:
                self._finish(message)
        self._waited += time.perf_counter() - begin

    def _connect(self, edge: int, store: Any) -> None:
        """Let the two ends of an edge meet; `edge` is the place of the member that receives."""
        receives = self._torch.index == edge
        try:
            timeout = timedelta(seconds=self._torch.timeout)
            self._edges[edge] = _pair(store, int(not receives), timeout, self._device)
        except RuntimeError as error:
            raise self._torch.reason(edge if not receives else self._after, error) from error
        first = torch.zeros(1, dtype=torch.uint8)
        self.wait([(self._receive if receives else self._send)(edge, first)])

    def _send(self, edge: int, outgoing: Tensor) -> _Message:
        with self._on(self._out):
            staging = outgoing.detach().view(torch.uint8).to(self._device, non_blocking=True)
            return self._post("send", edge, edge, staging, None)

    def _receive(self, edge: int, incoming: Tensor) -> _Message:
        with self._on(self._in):
            landing = incoming.view(torch.uint8)
            staging = landing if self._module is None else torch.empty_like(landing, device=self._device)
            return self._post("recv", edge, self._after, staging, landing)

    def _post(self, call: str, edge: int, peer: int, staging: Tensor, landing: Tensor | None) -> _Message:
        if self._torch.interrupted:
            raise Interrupted("this member gives up")
        try:
            work = getattr(self._edges[edge], call)([staging], int(call == "recv"), 0)
        except RuntimeError as error:
            raise self._torch.reason(peer, error) from error
        return _Message(peer, work, staging, landing)

    def _abort(self) -> None:
        """End all work under way on the device, and the waits of the members beside."""
        for edge in list(self._edges):
            self._edges.pop(edge).abort()  # a pair's connection closes with it

    def _finish(self, message: _Message) -> None:
        if self._torch.interrupted:
            raise Interrupted("this member gives up")
        try:
            if self._module is None:
                message.work.wait(timedelta(seconds=self._torch.timeout))
            else:
                self._arrived(message)
        except (Interrupted, PeerFailed):
            raise
        except RuntimeError as error:
            raise self._torch.reason(message.peer, error) from error
        message.work = message.staging = None

    def _arrived(self, message: _Message) -> None:
        """Copy what came to the host; sleep until the device is done with the message."""
        stream = self._out if message.landing is None else self._in
        with self._on(stream):
            message.work.wait()  # on a GPU, lets the stream wait and returns
            if message.landing is not None:
                message.landing.copy_(cast(Tensor, message.staging), non_blocking=True)
            event = torch.Event(self._device)
            event.record(stream)
        begin = checked = time.perf_counter()
        while not event.query():
            now = time.perf_counter()
            if self._torch.interrupted:
                raise Interrupted("this member gives up")
            if now - begin > self._torch.timeout:
                raise PeerSilent([self._torch.names[message.peer]], self._torch.timeout)
            if now - checked > _SECONDS_BETWEEN_CHECKS:
                self._torch.check()
                checked = now
            nap(now - begin, eager=0.0002, longest=0.001)

    @contextmanager
    def _on(self, stream: Any) -> Iterator[None]:
        """Work on a stream of this member's device, whichever thread this is."""
        if self._module is None:
            yield
            return
        with self._module.stream(stream):
            yield


def _pair(store: Any, place: int, timeout: timedelta, device: torch.device) -> Any:
    """Return a process group of two that torch.distributed's global tables do not know, so that it ends with us."""
    made: Any = torch.distributed
    backend = made.get_default_backend_for_device(device)
    if backend == "gloo":
        return made.ProcessGroupGloo(store, place, 2, timeout)
    if backend.upper() in made.Backend._plugins:
        return made.Backend._plugins[backend.upper()].creator_fn(store, place, 2, timeout)
    kind = getattr(made, f"ProcessGroup{backend.upper()}", None)
    if kind is None:
        raise ValueError(f"this torch was built without {backend.upper()}; send gradients over gloo or MPI")
    options = kind.Options()
    options._timeout = timeout
    return kind(store, place, 2, options)
