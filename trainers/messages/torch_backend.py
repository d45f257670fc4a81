"""Messages between the members of a group over torch.distributed, for programs that are started by torchrun.

Gradients are summed on the host whatever the device is, so messages go over gloo: on GPUs, start the process group with
"cpu:gloo,cuda:nccl". The bits are the same over any transport. gloo's waits sleep and end with a time-out, but cannot
be broken off; a member that gives up closes its connections, which ends the waits of its peers: at once where it was
given a process group of its own, with the process where it is the default one. For gradients that go from GPU to GPU
see `trainers.reduce.device_sum`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from ipaddress import ip_address
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist

from trainers.messages.transport import Interrupted, PeerFailed, PeerSilent, Pending


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


class _Message:
    """A message under way, or one that is empty and was never sent."""

    def __init__(self, peer: int, memory: np.ndarray, work: Any) -> None:
        self.peer = peer
        self.memory = memory  # gloo reads or writes it until the work is complete
        self.work = work

    @property
    def done(self) -> bool:
        return self.work is None


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
