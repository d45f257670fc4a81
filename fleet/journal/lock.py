"""The lock of a run directory: one run at a time writes there.

The kernel's lock goes with its process, and comes first. It lies on a file of its own, `.lock.held`, which is there
while the lock is held, and which only those can open who may write it: the others could hold a start up by a lock for
reading. A file system may have no such locks, or give them on each node anew: so the holder also writes into `.lock`
who it is, for everybody to read, and renews that as long as it lives. Older versions of fleet lock `.lock` itself; they
are known by what they write there.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

import psutil

from preprocess.files.reading import read_json
from preprocess.files.writing import open_in_place, open_to_append

NAME = ".lock"
HELD = ".held"  # what the name of the file has in addition that bears the kernel's lock
BEAT_SECONDS = 10.0
SILENT_SECONDS = 45.0  # that a holder on another node may let pass without renewing its record
_POLL_SECONDS = 0.5
_CLOCK_SECONDS = 3.0  # by which the start of one process seems to move when the node's clock is set
_RECORD_BYTES = 512  # always the same, so that a record replaces the one before
_HELD_MODE = 0o622  # less umask's bits: who may not write it has no way in
_MOST_RECORD_BYTES = 1 << 16
_FLOCK = "hhqqi4x"  # struct flock of Linux on 64 bits: type, whence, start, length, process
_WHOLE = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class HeldError(Exception):
    """Another run holds the lock; the text says which."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock.

    Attributes:
        host: its node's name.
        pid, started: its process, and the second at which that started; together they name it for good.
        namespace: equal for processes that see each other's ids.
        boot: the id of its node's start.
        beat: how often it has renewed the record.
    """

    host: str
    pid: int
    started: int
    namespace: int
    boot: str
    beat: int = 0

    @classmethod
    def own(cls) -> Holder:
        """Return this process."""
        return cls(socket.gethostname(), os.getpid(), int(psutil.Process().create_time()), _namespace(), _boot())

    @classmethod
    def read(cls, path: Path) -> Holder | None:
        """Return who the file says holds the lock; None if it names nobody."""
        try:
            found = cls(**read_json(path, _MOST_RECORD_BYTES))
        except (OSError, ValueError, TypeError):
            return None
        texts, numbers = (found.host, found.boot), (found.pid, found.started, found.namespace, found.beat)
        good = all(isinstance(text, str) and text.isprintable() for text in texts)
        good = good and all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)
        return found if good and 0 < found.pid < 1 << 31 else None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_same(self, other: Holder) -> bool:
        """Return whether both are one process."""
        return replace(self, beat=0) == replace(other, beat=0)

    def lives(self) -> bool | None:
        """Return whether the process lives; None: that cannot be seen from here."""
        if (self.boot, self.namespace) != (_boot(), _namespace()):
            return None
        try:
            process = psutil.Process(self.pid)
            return (
                process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - self.started) < _CLOCK_SECONDS
            )
        except psutil.NoSuchProcess:
            return False


class LockWatch:
    """Watches whether a lock is held, without touching it.

    Args:
        path: the lock's file.
        clock: seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._seen: Holder | None = None
        self._since = 0.0

    def holder(self) -> Holder | None:
        """Return who holds the lock; None: nobody. A holder on another node counts until its record is seen to rest."""
        found = Holder.read(self._path)
        if found != self._seen:
            self._seen, self._since = found, self._clock()
        lives = found is not None and found.lives()
        if lives is None and self._clock() - self._since >= SILENT_SECONDS:
            return None
        return None if lives is False else found


class Lock:
    """A lock that this process holds, until it ends or forgets it.

    Args:
        path: where the record is written.
        held: bears the kernel's lock, where there is one; closed at the end.

    Raises:
        OSError: the record cannot be written.
    """

    def __init__(self, path: Path, held: BinaryIO) -> None:
        self._path, self._own = path, Holder.own()
        self._file = _open_record(path)
        _write(self._file, self._own)
        weakref.finalize(self, _release, path, self._file, held, self._own)

    def renew(self) -> None:
        """Say that this process still lives.

        Raises:
            HeldError: another run took the lock, as this process did not renew it for long.
            OSError: the record cannot be written.
        """
        found = Holder.read(self._path)  # by its name: so what another node wrote is seen
        if found is not None and not found.is_same(self._own):
            raise HeldError(f"another run has begun to write there ({found}), as this one seemed dead")
        self._own = replace(self._own, beat=self._own.beat + 1)
        _write(self._file, self._own)


def take(
    path: Path,
    patience: float = 0.0,
    tell: Callable[[str], object] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Lock:
    """Take a lock.

    Args:
        path: the file of its record; made if there is none.
        patience: seconds to wait for a run that holds it.
        tell: is told once that this waits, and for whom.
        stop: whether to wait no more.
        clock: seconds.

    Raises:
        HeldError: another run held it all the time.
        OSError: a file cannot be opened or written, or was laid there by somebody.
    """
    watch, end, told = LockWatch(path, clock), clock() + patience, False
    while isinstance(held := _tried(path, watch), str):
        if clock() >= end or stop():
            raise HeldError(held)
        if not told:
            tell(f"{held}; waiting for its end, {patience:g} s at most")
        told = True
        time.sleep(min(_POLL_SECONDS, max(0.0, end - clock())))
    try:
        return Lock(path, held)
    except BaseException:
        with held:
            _take_away(held, path)
        raise


def _tried(path: Path, watch: LockWatch) -> BinaryIO | str:
    """Return the file with the kernel's lock, if this process has the lock by now; else, who holds it."""
    while True:
        file = open_to_append(_held(path), _HELD_MODE)
        locked = _locked(file)
        if locked is False or _is_there(file, _held(path)):
            break
        file.close()
    holder = watch.holder()  # read when the lock is had: who leaves it has taken its name away by then
    if holder is None and locked is not False:
        return file
    # Whatever the file system, among processes of one node its locks hold; but older versions have another one.
    if (
        holder is not None
        and locked
        and holder.boot == _boot()
        and (not holder.lives() or holder.is_same(Holder.own()))
    ):
        return file
    who = holder or _unnamed(file, _held(path))
    file.close()
    return f"another run is writing there now ({who})"


def _held(path: Path) -> Path:
    return path.with_name(f"{path.name}{HELD}")


def _locked(file: BinaryIO) -> bool | None:
    """Lock the file for as long as it is open; whether no other has; None: the file system has no such locks."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _WHOLE)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return None
    return True


def _is_there(file: BinaryIO, path: Path) -> bool:
    """Return whether the file bears its name still: who held it before may have taken it away."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(path))
    except OSError:
        return False


def _unnamed(file: BinaryIO, path: Path) -> str:
    """A holder that wrote no record: it has just come or goes, or is none of fleet's."""
    with suppress(OSError):
        kind, *_, process = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_OFD_GETLK, _WHOLE))
        if kind != fcntl.F_UNLCK and process > 0:
            return f"process {process}, which has locked {path}"
    return f"a process that has locked {path} and has not written who it is; fuser {path} tells"


def _open_record(path: Path) -> BinaryIO:
    """Open the record; one that its owner let nobody else write is replaced, as this process has the lock."""
    try:
        return open_in_place(path)
    except PermissionError:
        os.unlink(path)
        return open_in_place(path)


def _write(file: BinaryIO, holder: Holder) -> None:
    os.pwrite(file.fileno(), json.dumps(asdict(holder)).ljust(_RECORD_BYTES - 1).encode() + b"\n", 0)
    os.fsync(file.fileno())


def _release(path: Path, file: BinaryIO, held: BinaryIO, own: Holder) -> None:
    """Let nobody wait for this process; a fork of it leaves the lock alone."""
    with suppress(OSError), held, file:
        found = Holder.read(path)
        if own.pid != os.getpid() or not (found is None or found.is_same(own)):
            return
        if found is not None:
            os.ftruncate(file.fileno(), 0)
        _take_away(held, path)


def _take_away(held: BinaryIO, path: Path) -> None:
    """Take the locked file away while it is locked: who waits for it sees that, and makes another."""
    if _is_there(held, _held(path)):
        os.unlink(_held(path))


def _namespace() -> int:
    """0 where there are no namespaces."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _boot() -> str:
    """Return the id of this node's start; empty where there is none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""
