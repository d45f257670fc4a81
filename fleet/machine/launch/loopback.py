"""Local ranks and their launcher listen on the loopback interface alone.

Open MPI's launcher can be told on which interfaces it shall talk, and listens on all of them whatever it is told. So
its sockets are moved to the loopback interface from here, as soon as they listen: the same sockets and ports, so that
it notices nothing. Ranks of one machine need no sockets among themselves (see `Mpiexec.command`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_GET_DESCRIPTOR = 438  # pidfd_getfd, Linux 5.6, the same number on all processors
_STOP_SECONDS = 1.0  # in which a launcher has to stand still
_OFTEN_SECONDS, _SELDOM_SECONDS = 0.0005, 0.02  # between two looks: until a launcher listens, and behind that


def loopback_interface() -> str | None:
    """The name of this machine's loopback interface, as `lo`."""
    return min({name for _, name in socket.if_nameindex()} & {"lo", "lo0"}, default=None)


def keep_on_loopback(launcher: int, has_begun: Callable[[], bool]) -> None:
    """Move what a launcher listens on to the loopback interface, until ranks have begun or it has ended.

    It listens elsewhere for less than a millisecond. Nothing is done where the system does not let us: `listening`
    tells of it.

    Args:
        launcher: its process id; a child that has not been waited for.
    """
    with suppress(OSError, AttributeError):  # AttributeError: not on Linux
        process = os.pidfd_open(launcher)
        try:
            pause = _OFTEN_SECONDS
            while not has_begun():
                for found in _listening_sockets(launcher, process):
                    _move(launcher, process, found)
                    pause = _SELDOM_SECONDS
                time.sleep(pause)
        finally:
            os.close(process)


def listening(process: int) -> list[str]:
    """Where a process of this user listens beyond the loopback interface, such as 0.0.0.0:40001.

    OSError, AttributeError: the system does not tell.
    """
    descriptor = os.pidfd_open(process)
    try:
        return ["{}:{}".format(*found.getsockname()[:2]) for found in _listening_sockets(process, descriptor)]
    finally:
        os.close(descriptor)


def _listening_sockets(process: int, descriptor: int) -> Iterator[socket.socket]:
    """Yield the sockets on which a process listens beyond the loopback interface; each is closed here afterwards."""
    for entry in Path("/proc", str(process), "fd").iterdir():
        with suppress(FileNotFoundError):
            if not os.readlink(entry).startswith("socket:"):
                continue
            with closing(_socket_of(descriptor, int(entry.name))) as found:
                is_ours = found.family in _LOOPBACK and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if is_ours and found.getsockname()[0] != _LOOPBACK[found.family]:
                    yield found


def _socket_of(descriptor: int, number: int) -> socket.socket:
    """The very socket that a process has under this number."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(_GET_DESCRIPTOR, descriptor, number, 0)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return socket.socket(fileno=found)


def _move(launcher: int, process: int, found: socket.socket) -> None:
    """Let a socket listen on the loopback interface instead, under the same port if that is free there.

    Its process, a child, stands still meanwhile: it would take a socket that does not listen for a fault.
    """
    port = found.getsockname()[1]
    signal.pidfd_send_signal(process, signal.SIGSTOP)
    try:
        if not _stands_still(launcher):
            return
        found.shutdown(socket.SHUT_RD)  # it has no address from now on, as its process chose none
        try:
            found.bind((_LOOPBACK[found.family], port))
        except OSError:
            found.bind((_LOOPBACK[found.family], 0))
        found.listen()
    finally:
        signal.pidfd_send_signal(process, signal.SIGCONT)


def _stands_still(child: int) -> bool:
    """Wait until all threads of a child have stopped, as it was told to; whether they have."""
    deadline = time.monotonic() + _STOP_SECONDS
    while os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_OFTEN_SECONDS)
    return True
