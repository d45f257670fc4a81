"""Rounds of messages from device to device, over NCCL, RCCL or XCCL, or what else torch has for devices of a kind.

A channel is one communicator of all members, whose messages follow one another in one order. With several on a device,
two members could each wait in another one for the other. What a member sends and receives in a round begins together,
so no two members that send to each other stand before each other's receipts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainers.messages.nccl_watchdog import speak_before_nccl
from trainers.messages.torch_backend import TorchTransport
from trainers.messages.transport import Interrupted, PeerSilent, nap

_SECONDS_BETWEEN_CHECKS = 0.5


class DeviceChannel:
    """This member's way to the two beside it, from device to device.

    transport: what the members say else, and how one that gives up is heard of.
    device: this member's; no two members may have the same GPU.
    """

    def __init__(self, transport: TorchTransport, device: torch.device) -> None:
        """All members call it at once, and have met when it returns. PeerFailed, PeerSilent."""
        self._transport, self._device = transport, device
        self._module: Any = None if device.type == "cpu" else torch.get_device_module(device)
        self._before = (transport.index - 1) % transport.size
        self._after = (transport.index + 1) % transport.size
        number = transport.store.add(f"channels/{transport.index}", 1)  # all make theirs in the same order
        store = dist.PrefixStore(f"channel/{number}", transport.store)  # type: ignore[attr-defined]
        try:
            self._group, self._groups = _communicator(store, transport, device)
        except RuntimeError as error:
            raise transport.reason(self._after, error) from error
        transport.at_abort(self.abort)
        first = torch.zeros(2, dtype=torch.uint8, device=device)
        self.exchange([first[:1]], [first[1:]])
        self.settle()

    def exchange(self, outgoing: Sequence[Tensor], incoming: Sequence[Tensor]) -> None:
        """Send flat tensors to the member before this one, and fill others from the one after it.

        On a device, what its current stream does later waits for that; on a CPU, the call does. Both sides know all
        sizes; empty tensors are not sent. PeerFailed, PeerSilent, Interrupted.
        """
        calls = [("recv", tensor, self._after) for tensor in incoming if tensor.numel()]
        calls += [("send", tensor, self._before) for tensor in outgoing if tensor.numel()]
        if calls:
            self._let_wait(lambda: self._begun(calls), self._after)

    def _begun(self, calls: Sequence[tuple[str, Tensor, int]]) -> list[Any]:
        """Begin messages, together where the device knows how."""
        if not self._groups:
            return [getattr(self._group, call)([tensor.view(torch.uint8)], peer, 0) for call, tensor, peer in calls]
        self._group._start_coalescing(self._device)
        for call, tensor, peer in calls:
            getattr(self._group, call)([tensor.view(torch.uint8)], peer, 0)
        return [self._group._end_coalescing(self._device)]

    def broadcast(self, tensor: Tensor) -> None:
        """Fill a flat tensor with the first member's, as `exchange` does. PeerFailed, PeerSilent, Interrupted."""
        sender = 0 if self._transport.index else self._after
        self._let_wait(lambda: [self._group.broadcast([tensor.view(torch.uint8)], dist.BroadcastOptions())], sender)

    def _let_wait(self, begin: Callable[[], Sequence[Any]], peer: int) -> None:
        """Begin messages; the current stream waits for them. peer: of whom an error is."""
        if self._transport.interrupted:
            raise Interrupted("this member gives up")
        try:
            for work in begin():
                work.wait(timedelta(seconds=self._transport.timeout))
        except RuntimeError as error:
            raise self._transport.reason(peer, error) from error

    def settle(self) -> float:
        """Return, once the current stream has done all that it was given, the seconds that it took.

        PeerFailed, PeerSilent, Interrupted.
        """
        begin = checked = time.perf_counter()
        if self._module is None:
            return 0.0
        event = torch.Event(self._device)
        event.record(self._module.current_stream(self._device))
        while not event.query():
            now = time.perf_counter()
            if self._transport.interrupted:
                raise Interrupted("this member gives up")
            if now - checked > _SECONDS_BETWEEN_CHECKS:
                self._transport.check()
                checked = now
            if now - begin > self._transport.timeout:
                names = self._transport.names
                raise PeerSilent(sorted({names[self._before], names[self._after]}), self._transport.timeout)
            nap(now - begin, eager=0.0002, longest=0.001)
        return time.perf_counter() - begin

    def abort(self) -> None:
        """End all messages under way on the device, and the waits of the members beside."""
        group, self._group = self._group, None
        if group is not None:
            group.abort()


def _communicator(store: Any, transport: TorchTransport, device: torch.device) -> tuple[Any, bool]:
    """Return a process group that torch.distributed's tables do not know, so that it ends with us; and if it groups."""
    speak_before_nccl(transport.timeout)
    made: Any = dist
    name = made.get_default_backend_for_device(device)
    kinds = made.ProcessGroup.BackendType
    backend = _backend(name.upper(), store, transport)
    kind = getattr(kinds, name.upper(), kinds.CUSTOM)
    group = made.ProcessGroup(store, transport.index, transport.size)
    group._set_default_backend(kind)
    group._register_backend(torch.device(device.type), kind, backend)
    return group, bool(backend.supports_coalescing)


def _backend(name: str, store: Any, transport: TorchTransport) -> Any:
    made: Any = dist
    place, timeout = (transport.index, transport.size), timedelta(seconds=transport.timeout)
    if name == "GLOO":
        return made.ProcessGroupGloo(store, *place, timeout)
    if name in made.Backend._plugins:
        return made.Backend._plugins[name].creator_fn(store, *place, timeout)
    kind = getattr(made, f"ProcessGroup{name}", None)
    if kind is None:
        raise ValueError(f"this torch was built without {name}; send gradients over gloo or MPI")
    options = kind.Options()
    options._timeout = 2 * timeout + timedelta(
        minutes=1
    )  # torch's watchdog would end the process; ours says who is late
    return kind(store, *place, options)
