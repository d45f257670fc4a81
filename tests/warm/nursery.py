"""A process that has imported what ranks import, and forks them. Argument: the path of its socket.

It has one thread, opens no MPI and draws no random number, so that a fork of it is as good as a new start. It ends with
its parent, and all that it forked ends with it.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import importlib
import io
import json
import os
import resource
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

from fleet.machine.devices import has_gpus
from tests.warm.start.stand_in import surroundings

IMPORTED = (
    "torch", "torch._dynamo", "torch.distributed", "torch.nn.parallel", "numpy", "h5py", "mpi4py", "scipy.optimize",
    "cv2", "simplejpeg", "PIL.Image", "yaml", "tensorboard.summary.writer.event_file_writer", "fleet.commands.cli",
    "fleet.session.main", "fleet.commands.train_rank", "fleet.report.run_history", "trainers.proof.ddp", "trainers.zoo",
    "fleet.report.run_page", "fleet.report.live", "fleet.spec.job_checks", "fleet.spec.semantics",
    "fleet.spec.references", "rich._emoji_codes", "encodings.utf_8_sig",
)  # fmt: skip
THROUGHPUT_SECONDS = 0.25  # in place of fleet's 0.5


@dataclass(frozen=True)
class Order:
    """A process that is to be: its stand-in's connection, its standard files, and what it is told."""

    connection: socket.socket
    files: list[int]
    told: dict[str, Any]


class Nursery:
    """Forks a process an order.

    Args:
        path: of the socket on which orders come.
        around: what it cannot leave, see `surroundings`.
    """

    def __init__(self, path: str, around: dict[str, Any]) -> None:
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._selector = selectors.DefaultSelector()
        self._orders: dict[int, socket.socket] = {}  # by process descriptor
        self._surroundings = around
        self._watch(self._listening, self._take_order)
        self._listening.bind(f"{path}.new")
        self._listening.listen(64)
        os.rename(f"{path}.new", path)

    def serve(self) -> Order:
        """Return in each forked process, with its order; in the nursery itself, never."""
        while True:
            key, _ = self._selector.select()[0]  # one alone: it may end what the others were about
            order = key.data()
            if order is not None:
                return order  # type: ignore[no-any-return]

    def _watch(self, what: socket.socket | int, then: Callable[[], Order | None]) -> None:
        self._selector.register(what, selectors.EVENT_READ, then)

    def _take_order(self) -> Order | None:
        connection, _ = self._listening.accept()
        with suppress(ConnectionError, ValueError):  # of one that was killed while it spoke
            order = _read_order(connection)
            fork = order.told["surroundings"] == self._surroundings and len(order.files) == 3
            process = os.fork() if fork else None
            if process == 0:
                self._forget()
                return order
            for each in order.files:
                os.close(each)
            if process is not None:
                self._stand_by(process, connection)
                return None
        connection.close()
        return None

    def _stand_by(self, process: int, connection: socket.socket) -> None:
        descriptor = os.pidfd_open(process)
        self._orders[descriptor] = connection
        with suppress(OSError):
            connection.sendall(f"process {process}\n".encode())
        self._watch(descriptor, lambda: self._ended(process, descriptor))
        self._watch(connection, lambda: self._left(process, connection))

    def _ended(self, process: int, descriptor: int) -> None:
        """Tell how a process ended."""
        _, status = os.waitpid(process, 0)
        connection = self._orders.pop(descriptor)
        word = f"signal {os.WTERMSIG(status)}\n" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}\n"
        with suppress(OSError):
            connection.sendall(word.encode())
        self._selector.unregister(descriptor)
        with suppress(KeyError):
            self._selector.unregister(connection)
        os.close(descriptor)
        connection.close()

    def _left(self, process: int, connection: socket.socket) -> None:
        """A stand-in has been killed."""
        os.kill(process, signal.SIGKILL)
        self._selector.unregister(connection)

    def _forget(self) -> None:
        """In a forked process: close what is the nursery's."""
        self._selector.close()
        self._listening.close()
        for descriptor, connection in self._orders.items():
            os.close(descriptor)
            connection.close()


def _read_order(connection: socket.socket) -> Order:
    head, files, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as stream:
        text = stream.read(int.from_bytes(head, "little"))
    return Order(connection, files, json.loads(text))


def end_with_parent() -> None:
    """Be killed when the process that made this one ends."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def take_over(order: Order) -> list[str]:
    """Become the process that was ordered; return its command line behind `python`."""
    told = order.told
    end_with_parent()
    order.connection.close()
    for number, file in enumerate(order.files):
        os.dup2(file, number)
        os.close(file)
    faulthandler.register(signal.SIGTRAP, file=2, all_threads=True)  # a test asks where it hangs
    for number in told["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    for limit, soft, hard in told["limits"]:
        resource.setrlimit(limit, (soft, hard))
    os.sched_setaffinity(0, told["processors"])
    os.umask(told["mask"])
    os.chdir(told["folder"])
    _take_variables(told["variables"])
    _open_streams("PYTHONUNBUFFERED" in os.environ or told["words"][0] == "-u")
    tempfile.tempdir = None
    importlib.invalidate_caches()
    sys.orig_argv[1:] = told["words"]
    return list(told["words"])


def _take_variables(variables: dict[str, str]) -> None:
    ours = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    rest = [entry for entry in sys.path[1:] if entry not in ours]
    os.environ.clear()
    os.environ.update(variables)
    sys.path[1:] = [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry] + rest


def _open_streams(unbuffered: bool) -> None:
    """Standard streams as Python opens them."""
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)  # type: ignore[misc]
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw = os.fdopen(number, "wb", 0 if unbuffered else -1, closefd=False)
        errors = "backslashreplace" if number == 2 else "strict"
        lines = number == 2 or os.isatty(number)
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=lines, write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def go_on(words: list[str]) -> None:
    """Run the command as Python does."""
    words = words[1:] if words[0] == "-u" else words
    is_safe = words[0] == "-P"
    words = words[1:] if is_safe else words
    if words[0] == "-m":
        sys.path[0], sys.argv = os.getcwd(), words[1:]
        if is_safe and words[1] != "fleet":  # fleet takes it away itself, as it takes this Python for another
            del sys.path[0]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.path[0], sys.argv = "", ["-c", *words[2:]]
        sys.modules["__main__"] = main_module = ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), vars(main_module))
    else:
        sys.path[0], sys.argv = os.path.dirname(os.path.abspath(words[0])), words
        runpy.run_path(words[0], run_name="__main__")


def end(code: int) -> NoReturn:
    """End as Python does, but for taking torch's modules apart, which needs 0.4 s."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _let_libraries_be() -> None:
    """What torch registered when it was imported need not be unregistered by each process at its end."""
    for finalizer in weakref.finalize._registry:  # type: ignore[attr-defined]
        finalizer.atexit = False


def _hurry() -> None:
    """Let runs measure their preprocessors for half of the time: else a small run computes little else."""
    vars(importlib.import_module("fleet.session.measuring"))["THROUGHPUT_SECONDS"] = THROUGHPUT_SECONDS


def main() -> None:
    end_with_parent()
    around = surroundings()  # libraries set variables when they are imported
    gc.disable()  # all of it stays
    for name in IMPORTED:
        importlib.import_module(name)
    if "torch_rig" not in sys.modules and not has_gpus():  # with an accelerator, the first backward pass starts threads
        importlib.import_module("tests.warm.first_uses").use_all()
    _let_libraries_be()
    _hurry()
    gc.collect()
    gc.freeze()
    gc.enable()
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose the nursery's other threads"
    try:
        go_on(take_over(Nursery(sys.argv[1], around).serve()))
    except SystemExit as asked:
        if not isinstance(asked.code, int | None):
            raise  # Python prints what it is
        end(asked.code or 0)
    end(0)


if __name__ == "__main__":
    main()
