"""Rounds of messages from device to device, over NCCL, RCCL or XCCL, or what else torch has for devices of a kind.

A channel is one communicator of all members, whose messages follow one another in one order. With several on a device,
two members could each wait in another one for the other. What a member sends and receives in a round begins together,
so no two members that send to each other stand before each other's receipts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainers.device.nap import nap
from trainers.device.own_device import select
from trainers.messages.looks import LEAST_BETWEEN, Looks
from trainers.messages.nccl_watchdog import speak_before_nccl
from trainers.messages.torch_backend import joined_store, timed_out
from trainers.messages.transport import Interrupted, PeerFailed, PeerSilent, Transport

_REASON_SECONDS = 5.0
"""How long a member that gave up may take to tell its peers why, once its messages have ended."""
_SLACK_SECONDS = 60.0
"""By so much, beyond twice ours, do torch's own time-outs come after ours: those say on whom a member waits."""


class DeviceChannel:
    """This member's way to the two beside it, from device to device.

    name: `HOST:PORT/NUMBER`, what the members call it and where they meet: at a `torch.distributed.TCPStore`.
    transport: what the members say else, and how one that gives up is heard of. A group that forms again with the same
        members brings another.
    device: this member's; no two members may have the same GPU.
    """

    def __init__(self, name: str, transport: Transport, device: torch.device) -> None:
        """Begin to meet; all members do so at once, and `met` waits for them."""
        self.name, self.transport, self._device = name, transport, device
        self._module: Any = None if device.type == "cpu" else torch.get_device_module(device)
        self._before = (transport.index - 1) % transport.size
        self._after = (transport.index + 1) % transport.size
        self._group: Any = None
        self._aborted: Any = None
        self._groups = self._is_over = False
        self._first = torch.empty(2, dtype=torch.uint8, device=device)  # this member's number, and the next one's
        self._answer = -1
        self._errors: list[BaseException] = []
        self._looks = Looks()
        # NCCL's own meeting knows no bound and hears of nobody, and takes tenths of a second, beside other work here.
        self._thread = Thread(target=self._begin_to_meet, name="meeting", daemon=True)
        self._meeting: Thread | None = self._thread
        self._thread.start()
        self._begun_at = time.perf_counter()

    @property
    def meets(self) -> bool:
        """Whether this member's thread still meets the others, be it in vain."""
        return self._thread.is_alive()

    @property
    def is_due(self) -> bool:
        """Whether `met` has nothing to wait for, or the members have met for as long as anybody may wait for them."""
        return not self.meets or time.perf_counter() - self._begun_at > self.transport.timeout

    @property
    def has_failed(self) -> bool:
        """Whether this member could not meet the others; `met` says why."""
        return bool(self._errors)

    def met(self) -> None:
        """Return once all members have met; before the first message. PeerFailed, PeerSilent, Interrupted."""
        meeting, self._meeting = self._meeting, None
        if meeting is None:
            return
        try:
            self._wait(lambda: not meeting.is_alive(), lambda elapsed: meeting.join(LEAST_BETWEEN))
            if self._errors:
                error = self._errors[0]
                raise self._reason(self._after, error) if isinstance(error, RuntimeError) else error
            if self._answer != self._after % 255:
                raise PeerFailed(self.transport.names[self._after], "the first message was not its own")
        except BaseException:
            self.abort()
            raise

    def leave_meeting(self, seconds: float) -> None:
        """Abort, and give the thread that meets so long to hear of it."""
        if self.meets:
            self.abort()
            self._thread.join(max(seconds, 0.0))

    def exchange(self, outgoing: Sequence[Tensor], incoming: Sequence[Tensor]) -> None:
        """Send flat tensors to the member before this one, and fill others from the one after it.

        On a device, what its current stream does later waits for that; on a CPU, the call does. Both sides know all
        sizes; empty tensors are not sent. PeerFailed, PeerSilent, Interrupted.
        """
        calls = [("recv", tensor, self._after) for tensor in incoming if tensor.numel()]
        calls += [("send", tensor, self._before) for tensor in outgoing if tensor.numel()]
        if calls:
            self._let_wait(lambda: self._begun(calls), self._after)

    def broadcast(self, tensor: Tensor, origin: int = 0) -> None:
        """Fill a flat tensor with that of member `origin`, as `exchange` does. PeerFailed, PeerSilent, Interrupted."""
        options = dist.BroadcastOptions()
        options.rootRank = origin
        sender = origin if self.transport.index != origin else self._after
        self._let_wait(lambda: [self._group.broadcast([tensor.view(torch.uint8)], options)], sender)

    def settle(self) -> float:
        """Return, once the current stream has done all that it was given, the seconds that it took.

        Whatever else would wait for the stream could hear of no member that gives up. PeerFailed, PeerSilent,
        Interrupted.
        """
        begin = time.perf_counter()
        if self._module is None:
            return 0.0
        event = torch.Event(self._device)
        event.record(self._module.current_stream(self._device))
        self._wait(event.query, lambda elapsed: nap(elapsed, eager=0.0002, longest=0.001))
        return time.perf_counter() - begin

    def abort(self) -> None:
        """End all messages under way on the device, and the waits of the members beside.

        The channel keeps torch's group as long as it lives itself: torch takes over ten milliseconds to drop one.
        """
        self._is_over = True
        group, self._group = self._group, None
        if group is not None:
            self._aborted = group
            group.abort()

    def _begin_to_meet(self) -> None:
        """Send and receive the first messages, in a thread and on a stream of their own: what else the device does must
        not wait for a member that is perhaps lost.
        """
        try:
            select(self._device)
            group, self._groups = _communicator(self.name, self.transport, self._device)
            self._group = group
            with self._own_stream():
                self._first.copy_(torch.tensor([self.transport.index % 255, 255], dtype=torch.uint8))
                calls = [("recv", self._first[1:], self._after), ("send", self._first[:1], self._before)]
                for work in self._begun(calls):
                    work.wait(timedelta(seconds=_longer(self.transport)))
                self._answer = int(self._first[1])
        except BaseException as error:
            self._errors.append(error)
        if self._is_over:  # nobody waits any more
            self.abort()

    def _own_stream(self) -> AbstractContextManager[Any]:
        if self._module is None:
            return nullcontext()
        own: AbstractContextManager[Any] = self._module.stream(self._module.Stream(device=self._device))
        return own

    def _begun(self, calls: Sequence[tuple[str, Tensor, int]]) -> list[Any]:
        """Begin messages, together where the device knows how."""
        group = self._group
        if not self._groups:
            return [getattr(group, call)([tensor.view(torch.uint8)], peer, 0) for call, tensor, peer in calls]
        group._start_coalescing(self._device)
        for call, tensor, peer in calls:
            getattr(group, call)([tensor.view(torch.uint8)], peer, 0)
        return [group._end_coalescing(self._device)]

    def _let_wait(self, begin: Callable[[], Sequence[Any]], peer: int) -> None:
        """Begin messages; the current stream waits for them. peer: of whom an error is.

        With a time limit NCCL and XCCL would block the host until the messages are over; `settle` bounds the wait.
        """
        if self.transport.interrupted:
            raise Interrupted("this member gives up")
        limit = () if self._module is not None else (timedelta(seconds=self.transport.timeout),)
        try:
            for work in begin():
                work.wait(*limit)
        except RuntimeError as error:
            raise self._reason(peer, error) from error

    def _wait(self, is_done: Callable[[], bool], rest: Callable[[float], object]) -> None:
        """Rest until something is done, and look meanwhile whether it can be. PeerFailed, PeerSilent, Interrupted."""
        begin = time.perf_counter()
        self._looks.begin()
        while not is_done():
            now = time.perf_counter()
            if self.transport.interrupted:
                raise Interrupted("this member gives up")
            self._looks.if_due(self.transport.check)
            if now - begin > self.transport.timeout:
                names = self.transport.names
                raise PeerSilent(sorted({names[self._before], names[self._after]}), self.transport.timeout)
            rest(now - begin)

    def _reason(self, peer: int, error: RuntimeError) -> Exception:
        """Return what an error of torch.distributed means. Who gave up says why a moment after its messages end."""
        name, late = self.transport.names[peer], timed_out(error)
        end = time.perf_counter() + (0.0 if late else _REASON_SECONDS)
        try:
            while not self.transport.interrupted:
                self.transport.check()
                if time.perf_counter() > end:
                    break
                time.sleep(0.001)
        except PeerFailed as told:
            return told
        if self.transport.interrupted:
            return Interrupted("this member gives up")
        if late:
            return PeerSilent([name], self.transport.timeout)
        return PeerFailed(name, f"the connection to it ended ({str(error).splitlines()[0]})")


def why_not(device: torch.device) -> str:
    """Say why devices of this kind cannot send to each other; "" if they can."""
    name = _backend_name(device)
    if device.type == "cpu":
        return "this job trains on the CPU"
    if name in ("", "GLOO"):
        return f"torch knows no messages between devices of the kind {device.type}"
    known = name in dist.Backend._plugins or hasattr(dist, f"ProcessGroup{name}")
    return "" if known else f"this torch was built without {name}"


def _backend_name(device: torch.device) -> str:
    made: Any = dist
    return str(made.Backend.default_device_backend_map.get(device.type, "")).upper()


def _longer(transport: Transport) -> float:
    return 2 * transport.timeout + _SLACK_SECONDS


def _communicator(name: str, transport: Transport, device: torch.device) -> tuple[Any, bool]:
    """Return a process group that torch.distributed's tables do not know, so that it ends with us; and if it groups."""
    speak_before_nccl(transport.timeout)
    made: Any = dist
    address, _, number = name.rpartition("/")
    limit = timedelta(seconds=_longer(transport))
    store = made.PrefixStore(number, joined_store(address, _longer(transport)))
    kinds = made.ProcessGroup.BackendType
    known = _backend_name(device)
    backend = _backend(known, store, transport, limit)
    kind = getattr(kinds, known, kinds.CUSTOM)
    group = made.ProcessGroup(store, transport.index, transport.size)
    group._set_default_backend(kind)
    group._register_backend(torch.device(device.type), kind, backend)
    return group, bool(backend.supports_coalescing)


def _backend(name: str, store: Any, transport: Transport, limit: timedelta) -> Any:
    made: Any = dist
    place = (transport.index, transport.size)
    if name == "GLOO":
        return made.ProcessGroupGloo(store, *place, limit)
    if name in made.Backend._plugins:
        return made.Backend._plugins[name].creator_fn(store, *place, limit)
    kind = getattr(made, f"ProcessGroup{name}", None)
    if kind is None:
        raise ValueError(f"this torch was built without {name}; send gradients over gloo or MPI")
    options = kind.Options()
    options._timeout = limit  # torch's watchdog would end the process
    return kind(store, *place, options)
