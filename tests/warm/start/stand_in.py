"""Stands for a process that the nursery forked: hands its signals on, and ends as it ends."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from types import FrameType
from typing import Any

# What Python or a library reads once, at its start: a process for which it differs from the nursery starts by itself.
READ_AT_START = (
    "ATEN", "DNNL", "GLIBC", "GOMP", "KMP", "LANG", "LC_", "LD_", "MALLOC", "MKL", "OMP_", "ONEDNN", "OPENBLAS",
    "PMI_FD", "PYTHONDONT", "PYTHONFAULT", "PYTHONHASH", "PYTHONHOME", "PYTHONMALLOC", "PYTHONOPT", "PYTHONUTF",
    "PYTHONWARN", "TORCH", "TZ",
)  # fmt: skip
MODULES = ("fleet", "trainers", "preprocess", "benchmarks", "mpi4py", "torch")
WORKER = ["-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"]  # how pytest-xdist starts those that run tests
NAMESPACES = ("mnt", "net", "pid", "uts", "ipc", "user", "cgroup")
HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTRAP)
LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_DATA)


def be_forked(nursery: str) -> None:
    """Stand for the process until its end, and end likewise; return if it is to start by itself."""
    if not _is_known(sys.orig_argv[1:]):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(nursery)
        except OSError:
            return  # it has not imported everything yet
        _Stand(connection).go()


def surroundings() -> dict[str, Any]:
    """What a process cannot take over from another."""
    variables = {name: value for name, value in os.environ.items() if name.startswith(READ_AT_START)}
    libraries = variables.pop("LD_LIBRARY_PATH", "").split(":")
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_DETERMINISTIC"):
        variables.pop(name, None)  # set in a process that imports torch's compiler, and in one that trains
    return {
        "variables": variables,
        "libraries": [path for path in libraries if path and not path.startswith(sys.prefix)],  # mpiexec's, OpenCV's
        "namespaces": [os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES],
        "root": os.readlink("/proc/self/root"),
        "user": [os.getuid(), os.getgid()],
        "python": sys.prefix,
    }


def _is_known(words: list[str]) -> bool:
    """Whether the command is one that tests start, and no other tool."""
    words = words[1:] if words[:1] == ["-P"] else words
    if words[:1] == ["-m"]:
        return len(words) > 1 and words[1].partition(".")[0] in MODULES
    if words == WORKER:
        return True
    if words[:1] and words[0].endswith(".py"):
        return "/tests/" in words[0] or "/" not in words[0]  # the latter: a page's script, in its reader's folder
    return words[:1] == [f"{sys.prefix}/bin/fleet"]


class _Stand:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._process: int | None = None
        self._early: list[int] = []

    def go(self) -> None:
        before = {number: signal.getsignal(number) for number in HANDED_ON}
        ignored = [int(number) for number, handler in before.items() if handler is signal.SIG_IGN]
        for number in HANDED_ON:  # also those that are ignored here: the other may have taken them over
            signal.signal(number, self._hand_on)
        self._order(ignored)
        with self._connection.makefile("r") as answers:
            process = answers.readline().split()
            if process[:1] != ["process"]:  # refused
                for number, handler in before.items():
                    signal.signal(number, handler)
                for early in self._early:
                    os.kill(os.getpid(), early)
                return
            self._process = int(process[1])
            for early in self._early:
                os.kill(self._process, early)
            _end_as(answers.readline().split())

    def _order(self, ignored: list[int]) -> None:
        order = {
            "words": sys.orig_argv[1:],
            "variables": dict(os.environ),
            "folder": os.getcwd(),
            "processors": sorted(os.sched_getaffinity(0)),
            "mask": _file_mode_mask(),
            "limits": [[limit, *resource.getrlimit(limit)] for limit in LIMITS],
            "ignored": ignored,
            "surroundings": surroundings(),
        }
        text = json.dumps(order).encode()
        socket.send_fds(self._connection, [len(text).to_bytes(8, "little")], [0, 1, 2])
        self._connection.sendall(text)

    def _hand_on(self, number: int, frame: FrameType | None) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            os.kill(self._process, number)


def _file_mode_mask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _end_as(end: list[str]) -> None:
    """end: "exit" and a code, or "signal" and a number; nothing where the nursery itself has gone."""
    if end[:1] == ["signal"]:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if int(end[1]) != signal.SIGKILL:
            signal.signal(int(end[1]), signal.SIG_DFL)
        os.kill(os.getpid(), int(end[1]))
    os._exit(int(end[1]) if end[:1] == ["exit"] else 1)
