"""Files that a source opens: found by their paths, tried in time, and refused with one error where they are damaged.

Over some damaged files a library computes for ever, or crashes, and it may hold Python's lock meanwhile, so that no
thread and no signal's handler could stop it. So a process of its own reads the file first, and the kernel bounds how
long that computes, and what memory it takes.
"""

from __future__ import annotations

import glob
import json
import math
import os
import re
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from preprocess.files.memory import READ_MEMORY, SMALL_BYTES, NeedsTooMuchMemory, bytes_of, human
from preprocess.files.modules import python
from preprocess.files.reading import NotAFile, TooLarge, check_is_file
from preprocess.samples.errors import SourceError

MEND = "convert it anew, or copy it anew from where it came"

_RAISED: tuple[type[Exception], ...] = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
#: Characters of an error that are told: some libraries put a whole file into theirs.
_MOST = 300


class DamageError(SourceError):
    """A file whose content is not as it was written."""


@contextmanager
def damage_named(path: str, what: str, also: tuple[type[Exception], ...] = (), mend: str = MEND) -> Iterator[None]:
    """Turn what a library raises on a damaged file, which can be nearly anything, into DamageError.

    Args:
        path: the file.
        what: which part of it is read.
        also: the library's own errors.
        mend: what to do about it.
    """
    try:
        with refusals_named(mend):
            yield
    except SourceError:
        raise
    except (*_RAISED, *also) as e:
        text = " ".join(str(e).split())
        reason = text if len(text) <= _MOST else text[:_MOST] + " ..."
        raise DamageError(path, f"{what} cannot be read ({reason or type(e).__name__})", mend) from e


@contextmanager
def refusals_named(mend: str = MEND) -> Iterator[None]:
    """Turn the refusal of a file that is none, or too large, into SourceError.

    Args:
        mend: what to do about it, where the refusal does not say.
    """
    try:
        yield
    except (NotAFile, TooLarge, NeedsTooMuchMemory) as refusal:
        rule, _, told = str(refusal.strerror).partition("; ")
        raise SourceError(str(refusal.filename), rule, told or mend) from refusal


def needed(module: str, package: str, extra: str, what: str) -> Any:
    """Import a module and return it.

    Args:
        module: what is imported.
        package: the package on PyPI that has it.
        extra: the extra of fleet-hpc that brings the package.
        what: what cannot be read without it, in the plural.

    Raises:
        SourceError: it is not installed, or cannot be imported.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as cause:
        if (cause.name or "").partition(".")[0] != module.partition(".")[0]:
            raise _broken(module, package, cause) from cause
        rule = f"to read {what} takes the package {package}, which is not installed"
        raise SourceError(package, rule, f"pip install 'fleet-hpc[{extra}]', or pip install {package}") from cause
    except ImportError as cause:
        raise _broken(module, package, cause) from cause


def _broken(module: str, package: str, cause: ImportError) -> SourceError:
    rule = f"importing {module} raised {type(cause).__name__}: {cause}"
    return SourceError(package, rule, f"install it anew: pip install --force-reinstall {package}")


COMPUTING_SECONDS = 12  # a sound file takes hundredths of a second
PATIENCE_SECONDS = 600.0  # for a file system that is slow

_DAMAGE = (signal.SIGXCPU, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
_MUCH = 4  # what grew by this part of what it may take has wanted all of it
_TOO_MUCH_MEMORY = 77  # how the other process ends
_ALLOCATION = re.compile(r"alloc|out of memory|resource temporarily", re.IGNORECASE)
_START = (
    "import sys; from importlib import import_module; getattr(import_module(sys.argv[1]), sys.argv[2])(sys.argv[3])"
)


def try_in_time(library: str, trial: Callable[[str], None], path: str, **arguments: Any) -> None:
    """Read a file's first and last sample in another process; nothing comes of it but the refusal.

    Args:
        library: what reads such files, for errors.
        trial: a function of a module, called there with a text that it passes on to `bounded`.
        path: the file.
        arguments: the others of the function that opens it.

    Raises:
        SourceError: the library crashes over the file, or computes for longer than COMPUTING_SECONDS, or takes more
            than `most_memory`, or the file system does not answer within PATIENCE_SECONDS.
    """
    memory = most_memory()
    told = json.dumps([COMPUTING_SECONDS, memory, {"path": path, **arguments}], default=str)
    command = python("-c", _START, trial.__module__, trial.__name__, told)
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
    if ended.returncode == _TOO_MUCH_MEMORY:
        rule = f"the {library} library takes more than {human(memory)} of memory to read a sample"
        raise SourceError(path, rule, f"where that is right, set {READ_MEMORY}={math.ceil(2 * memory / 2**30)}G")


def most_memory() -> int:
    """Return the bytes that a trial may take: for one thing of SMALL_BYTES, or as READ_MEMORY says, and its copies."""
    return 3 * max(SMALL_BYTES, bytes_of(os.environ.get(READ_MEMORY, "0")))


def bounded(read: Callable[..., Any], told: str) -> None:
    """Read as told, within the bounds, in the other process; whoever opens the file then tells what Python can tell."""
    seconds, memory, arguments = json.loads(told)
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Not RLIMIT_AS: LMDB maps whole files, which takes no memory.
    resource.setrlimit(resource.RLIMIT_DATA, (_own_memory() + memory, resource.RLIM_INFINITY))
    try:
        source = read(**arguments)
        for index in {0, len(source) - 1}:
            source.read(index)
    except Exception as error:
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used.ru_maxrss) * 1024
        if _ran_out_of_memory(error, grown > memory // _MUCH):
            os._exit(_TOO_MUCH_MEMORY)


def _own_memory() -> int:
    """The bytes that RLIMIT_DATA counts of this process."""
    found = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _ran_out_of_memory(error: BaseException | None, has_grown: bool) -> bool:
    """Whether memory was what lacked: of a library that got none, an error may say no more than that it failed."""
    while error is not None:
        if isinstance(error, NeedsTooMuchMemory):  # was refused before it was taken
            return False
        if isinstance(error, MemoryError) or _ALLOCATION.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return has_grown


def existing(path: str) -> Path:
    """Return the path of a regular file that exists.

    Raises:
        SourceError: there is none.
    """
    with refusals_named("give the path of a file"):
        try:
            check_is_file(path)
        except (FileNotFoundError, NotADirectoryError) as cause:
            mend = f"paths are relative to {Path.cwd()}; mend the path"
            raise SourceError(str(path), "there is no such file", mend) from cause
        except PermissionError as cause:
            raise SourceError(str(path), "may not be read by this user", "ask its owner, or copy it") from cause
    return Path(path)


def file_paths(path: str | Sequence[str], endings: Sequence[str], what: str) -> list[str]:
    """Return the files that a path, a pattern, a folder or a list of these stands for; a folder's lie in it or below.

    Args:
        path: the path, pattern, folder or list.
        endings: how the files of a folder end, such as .tar.
        what: what may be given, for errors.

    Raises:
        SourceError: there are none, or one is no regular file.
    """
    found: list[str] = []
    for part in [path] if isinstance(path, (str, Path)) else list(path):
        some = _files(str(part), endings)
        for file in some:
            existing(file)
        if not some:
            rule = f"no file is called so, seen from {Path.cwd()}"
            if os.path.isdir(part):
                rule = f"is a folder without files that end in {endings[0]}"
            raise SourceError(str(part), rule, f"give {what}")
        found += some
    if not found:
        raise SourceError(path, "names no file", f"give {what}")
    return found


def _files(part: str, endings: Sequence[str]) -> list[str]:
    if os.path.isdir(part):
        flat = [file for ending in endings for file in glob.glob(os.path.join(glob.escape(part), f"*{ending}"))]
        deep = [os.path.join(glob.escape(part), "**", f"*{ending}") for ending in endings]
        return sorted(flat or [file for pattern in deep for file in glob.glob(pattern, recursive=True)])
    return [part] if os.path.exists(part) else sorted(file for file in glob.glob(part) if not os.path.isdir(file))
