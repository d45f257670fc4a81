"""Whether a library comes to an end with a file: over some damaged ones it computes for ever, or crashes.

It may hold Python's lock meanwhile, so no thread and no signal's handler could stop it. So a process of its own reads
the file first, and the kernel bounds how long that computes.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from preprocess.samples.errors import SourceError
from preprocess.sources.damage import MEND

COMPUTING_SECONDS = 20  # a sound file takes hundredths of a second
PATIENCE_SECONDS = 600.0  # for a file system that is slow

_DAMAGE = (signal.SIGXCPU, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
#: `python -m` would put the current folder first, and a `random.py` there would hide the standard one.
_START = (
    "import sys; sys.path.append(sys.path.pop(0)) if sys.path[0] == '' else None; "
    "from importlib import import_module; import_module(sys.argv[1]).try_as_told(sys.argv[2])"
)


def try_in_time(library: str, module: str, path: str, **arguments: Any) -> None:
    """Read a file's first and last sample in another process; nothing comes of it but the refusal.

    Args:
        library: what reads such files, for errors.
        module: has a function `try_as_told(told)`, which passes `told` on to `bounded`.
        path: the file.
        arguments: the others of the function that opens it.

    Raises:
        SourceError: the library crashes over the file, or computes for longer than COMPUTING_SECONDS, or the file
            system does not answer within PATIENCE_SECONDS.
    """
    told = json.dumps([COMPUTING_SECONDS, {"path": path, **arguments}], default=str)
    command = [sys.executable, "-c", _START, module, told]
    try:
        ended = subprocess.run(command, timeout=PATIENCE_SECONDS, capture_output=True, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        rule = f"was not read within {PATIENCE_SECONDS:g} s"
        raise SourceError(path, rule, "see whether its file system answers: ls the folder") from None
    number = -ended.returncode
    if number == signal.SIGXCPU:
        rule = f"is damaged: the {library} library computes on it for more than {COMPUTING_SECONDS} s"
        raise SourceError(path, rule, MEND)
    if number in _DAMAGE:
        rule = f"is damaged: the {library} library ends by {signal.Signals(number).name} over it"
        raise SourceError(path, rule, MEND)


def bounded(read: Callable[..., Any], told: str) -> None:
    """In the other process: read as told, within the bound; whoever opens the file then tells what Python can tell."""
    seconds, arguments = json.loads(told)
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(Exception):
        source = read(**arguments)
        for index in {0, len(source) - 1}:
            source.read(index)
