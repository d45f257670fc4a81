"""Messages over torch.distributed: between hosts over gloo, and from device to device.

`TorchTransport` is for programs that are started by torchrun; on GPUs, start the process group with
"cpu:gloo,cuda:nccl". The bits are the same over any transport. gloo's waits sleep and end with a time-out, but cannot
be broken off; a member that gives up closes its connections, which ends the waits of its peers: at once where it was
given a process group of its own, with the process where it is the default one.

A `DeviceChannel` is one communicator of all members over NCCL, RCCL or XCCL, or what else torch has for devices of a
kind, whose messages follow one another in one order. With several on a device, two members could each wait in another
one for the other. What a member sends and receives in a round begins together, so no two members that send to each
other stand before each other's receipts. torch's own watchdogs would end a process that waits too long; our time-outs
come first: they say on whom a member waits, and let the others go on.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from ipaddress import ip_address
from threading import Thread
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from trainers.device.device_streams import backoff, select
from trainers.messages.transport import Interrupted, PeerFailed, PeerSilent, Pending, Transport


class TorchTransport:
    """Messages among all members of a process group, in the order of their ranks in it.

    process_group: the default one if None. It must have been started for tensors on the CPU.
    tag: the tag of all messages. timeout: seconds after which a wait gives up. names: the members' ranks.
    interrupted: whether this member is about to give up.
    any_thread: True, as torch.distributed takes calls from any thread.
    """

    any_thread = True

    def __init__(self, process_group: dist.ProcessGroup | None = None, *, tag: int = 0, timeout: float = 300.0) -> None:
        """ValueError if the process group cannot send tensors that are on the CPU."""
        self._group = cast(Any, process_group if process_group is not None else dist.group.WORLD)
        backends = dist.get_backend_config(self._group)
        if "cpu:gloo" not in str(backends):
            raise ValueError(
                f"the process group sends with {backends}, which cannot send from the host; start it with "
                'init_process_group("cpu:gloo,cuda:nccl")'
            )
        self.index, self.size = dist.get_rank(self._group), dist.get_world_size(self._group)
        self.names: Sequence[int] = dist.get_process_group_ranks(self._group)
        self._tag = tag
        self.timeout = timeout
        self.interrupted = False
        prefix = f"trainers/{self._group.group_name}/{tag}"
        self._store = dist.PrefixStore(prefix, self._group.get_group_store())  # type: ignore[attr-defined]

    def send(self, peer: int, memory: np.ndarray) -> Pending:
        """Begin to send; an empty array is not sent."""
        return self._post(peer, memory, "send")

    def receive(self, peer: int, memory: np.ndarray) -> Pending:
        """Begin to fill `memory`, whose size both sides know."""
        return self._post(peer, memory, "recv")

    def wait(self, pending: Sequence[Pending]) -> float:
        """Return, once all are complete, the seconds that it took.

        PeerSilent names the rank that did not answer in time; PeerFailed one that aborted or ended.
        """
        begin = time.perf_counter()
        for message in cast("Sequence[_Message]", pending):
            if message.work is not None:
                self._finish(message)
        return time.perf_counter() - begin

    def interrupt(self) -> None:
        """Let no wait begin any more; one that goes on ends with its message or its time-out."""
        self.interrupted = True

    def check(self) -> None:
        """Raise PeerFailed if a peer has aborted."""
        for peer, name in enumerate(self.names):
            if peer != self.index and self._store.check([str(peer)]):
                raise PeerFailed(name, self._store.get(str(peer)).decode(errors="replace"))

    def abort(self, text: str) -> None:
        """Tell every peer that this member gave up and why; the process group is of no use afterwards."""
        self._store.set(str(self.index), text)
        self.interrupt()
        if self._group is not None and self._group is not dist.group.WORLD:
            dist.destroy_process_group(self._group)
        self._group = None

    def close(self) -> None:
        """Let go of nothing: who started the process group ends it."""

    def _post(self, peer: int, memory: np.ndarray, call: str) -> _Message:
        if not memory.size:
            return _Message(peer, memory, None)
        if self.interrupted:
            raise Interrupted("this member gives up")
        try:
            work = getattr(self._group, call)([torch.from_numpy(memory)], peer, self._tag)
            return _Message(peer, memory, work)
        except RuntimeError as error:
            raise self._reason(peer, error) from error

    def _finish(self, message: _Message) -> None:
        if self.interrupted:
            raise Interrupted("this member gives up")
        try:
            message.work.wait(timedelta(seconds=self.timeout))
        except RuntimeError as error:
            raise self._reason(message.peer, error) from error
        message.work = None

    def _reason(self, peer: int, error: RuntimeError) -> Exception:
        """Return what an error of torch.distributed in a message from or to `peer` means."""
        if self.interrupted:
            return Interrupted("this member gives up")
        try:
            self.check()
        except (PeerFailed, RuntimeError) as told:
            return told
        if timed_out(error):
            return PeerSilent([self.names[peer]], self.timeout)
        return PeerFailed(self.names[peer], f"the connection to it ended ({str(error).splitlines()[0]})")


class _Message:
    """A message under way, or one that is empty and was never sent."""

    def __init__(self, peer: int, memory: np.ndarray, work: Any) -> None:
        self.peer = peer
        self.memory = memory  # gloo reads or writes it until the work is complete
        self.work = work

    @property
    def done(self) -> bool:
        return self.work is None


def timed_out(error: RuntimeError) -> bool:
    """Whether an error of torch.distributed is that a message took too long."""
    return any(word in str(error) for word in ("imed out", "imeout"))


def on_loopback() -> dict[str, str]:
    """The variable that has gloo listen on the loopback interface, for processes of one machine; {} where it is set.

    gloo would look for the interface of the host's name, which leads to everybody, or nowhere.
    """
    names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    return {"GLOO_SOCKET_IFNAME": names[0]} if names and "GLOO_SOCKET_IFNAME" not in os.environ else {}


def listening_store(on_one_host: bool, timeout: float) -> tuple[Any, str]:
    """Return a TCPStore of this process, and the HOST:PORT by which the others find it.

    By itself torch listens on all interfaces. This one listens on the loopback interface where all members are on this
    host, else on that of the host's name, unless the name leads to this host alone. Whoever reaches the port can read
    and write: torch knows no secret here.

    Args:
        timeout: seconds.
    """
    host = "127.0.0.1"
    if not on_one_host:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        host = str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])
    is_own = on_one_host or not ip_address(host.partition("%")[0]).is_loopback
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host if is_own else "", 0), family=family)
    name = f"{host if is_own else socket.gethostname()}:{listening.getsockname()[1]}"
    made: Any = dist
    limit, descriptor = timedelta(seconds=timeout), listening.detach()
    return made.TCPStore(*_host_and_port(name), None, True, limit, False, master_listen_fd=descriptor), name


def joined_store(name: str, timeout: float) -> Any:
    """Return the store at HOST:PORT, which another process listens for."""
    made: Any = dist
    return made.TCPStore(*_host_and_port(name), is_master=False, timeout=timedelta(seconds=timeout))


def _host_and_port(name: str) -> tuple[str, int]:
    host, _, port = name.rpartition(":")
    return host, int(port)


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
        """Begin to meet; all members do so at once, and `connected` waits for them."""
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
        self._thread = Thread(target=self._begin_to_connect, name="meeting", daemon=True)
        self._meeting: Thread | None = self._thread
        self._thread.start()
        self._begun_at = time.perf_counter()

    @property
    def is_connecting(self) -> bool:
        """Whether this member's thread still meets the others, be it in vain."""
        return self._thread.is_alive()

    @property
    def is_due(self) -> bool:
        """Whether `connected` has nothing to wait for, or has taken as long as anybody may wait for the members."""
        return not self.is_connecting or time.perf_counter() - self._begun_at > self.transport.timeout

    @property
    def has_failed(self) -> bool:
        """Whether this member could not meet the others; `connected` says why."""
        return bool(self._errors)

    def connected(self) -> None:
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

    def stop_connecting(self, seconds: float) -> None:
        """Abort, and give the thread that meets so long to hear of it."""
        if self.is_connecting:
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
        self._wait(event.query, lambda elapsed: backoff(elapsed, eager=0.0002, longest=0.001))
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

    def _begin_to_connect(self) -> None:
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


_NO_HANDLING = "0"  # torch's ErrorHandlingMode; one that ends messages and not the process passes them off as complete


_HEARTBEATS = 2.0  # our time-out, this often, without a sign of torch's watchdog: then something is stuck for good


def speak_before_nccl(timeout: float, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set what torch reads when a process group over NCCL is made; what the user has set stays.

    timeout: seconds after which a wait of ours gives up.
    """
    environment.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", _NO_HANDLING)
    environment.setdefault("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", str(int(_HEARTBEATS * timeout) + 60))


LEAST_BETWEEN = 0.0005
"""Seconds between two looks."""


_PART = 0.05
"""Of a wait that looks may take."""


_SLOWER = 2.0
"""By so much, at most, does a look count as longer than the one before: most that take long were not given a core."""


class Looks:
    """Paces looks that may take long. clock: seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._takes = LEAST_BETWEEN * _PART
        self._due = 0.0

    def begin(self) -> None:
        """A wait begins: most end before the first look."""
        self._due = self._clock() + LEAST_BETWEEN

    def if_due(self, look: Callable[[], None]) -> None:
        """Look, unless that was done a moment ago; what it raises ends the wait."""
        begin = self._clock()
        if begin <= self._due:
            return
        look()
        end = self._clock()
        self._takes = min(end - begin, _SLOWER * self._takes)
        self._due = end + max(LEAST_BETWEEN, self._takes / _PART)
