"""The process of a service: a Python of its own, or a copy of this process where an object is handed over.

A copy has one thread, and the locks and pools of the others as they were: what they held is never given back. So the
copy uses nothing of this process but the object, and every wait for it has a limit.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress

from preprocess.files.modules import python
from preprocess.files.writing import open_to_append
from preprocess.sharing.place import ServicePlace
from preprocess.sharing.settings import SETTINGS, ServiceSettings

#: What may hold up a service that is a copy of its loader's process, and what helps.
COPY_ADVICE = (
    "it is a copy (fork) of the process that handed an object over, and stands still if it needs a lock that another "
    "thread held at that moment: make the loader before threads start, or give the data by name, as in "
    '{"source": "module:Name"}'
)


def execute(place: ServicePlace, settings: ServiceSettings, ready: int) -> int:
    """Start a service in a Python of its own; return the id of its first process, a child that soon ends.

    Nothing of this process is copied, so that its threads may do what they like.

    Args:
        place: the service's place.
        settings: what the service reads from its standard input.
        ready: descriptor that becomes its standard output.
    """
    given = os.memfd_create("settings")  # a pipe might be too small for them
    log = _open_log(place)
    try:
        os.write(given, SETTINGS.dump_json(settings) + b"\n")
        os.lseek(given, 0, os.SEEK_SET)
        streams = [(os.POSIX_SPAWN_DUP2, descriptor, stream) for stream, descriptor in enumerate((given, ready, log))]
        command = python("-m", "preprocess.sharing", place.name)
        return os.posix_spawn(sys.executable, command, os.environ, file_actions=streams, setsid=True)
    finally:
        os.close(given)
        os.close(log)


def fork(place: ServicePlace, serve: Callable[[], None], of_the_parent: Iterable[int]) -> int:
    """Start a service in a copy of this process; return the id of its first process, a child that soon ends.

    Args:
        place: the service's place.
        serve: called in the copy.
        of_the_parent: descriptors that are closed there.
    """
    first = os.fork()
    if first:
        return first
    try:
        os.setsid()
        if not os.fork():
            _be_a_copy(place, serve, of_the_parent)
    finally:
        os._exit(0)


def end_launched(first: int) -> None:
    """Kill a service that does not answer, by the id of its first process, which was not waited for."""
    for kill in (os.killpg, os.kill):  # there is no group yet if the first process stands still at its start
        with suppress(ProcessLookupError):
            kill(first, signal.SIGKILL)


def _be_a_copy(place: ServicePlace, serve: Callable[[], None], of_the_parent: Iterable[int]) -> None:
    """Call `serve` in this copy, away from what other threads of the parent may have held at the fork."""
    gc.freeze()  # finalisers of the parent's garbage may want locks
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in of_the_parent:
        os.close(descriptor)
    log = _open_log(place)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, stream in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, stream)
    with os.fdopen(log, "w", buffering=1) as output, redirect_stdout(output), redirect_stderr(output):
        try:
            serve()
        except BaseException:
            traceback.print_exc()


def _open_log(place: ServicePlace) -> int:
    with open_to_append(place.log, 0o600) as log:
        log.truncate(0)
        return os.dup(log.fileno())
