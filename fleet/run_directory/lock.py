"""The lock of a run directory: one run at a time writes there.

The kernel's lock of the file goes with its process, and comes first. A file system may have none, or give it on each
node anew: so the holder also writes into the file who it is, and renews that as long as it lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

import psutil

NAME = ".lock"
BEAT_SECONDS = 10.0
SILENT_SECONDS = 45.0  # that a holder on another node may let pass without renewing its record
_POLL_SECONDS = 0.5
_CLOCK_SECONDS = 3.0  # by which the start of one process seems to move when the node's clock is set
_RECORD_BYTES = 512  # always the same, so that a record replaces the one before


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
        """This process."""
        return cls(socket.gethostname(), os.getpid(), int(psutil.Process().create_time()), _namespace(), _boot())

    @classmethod
    def read(cls, path: Path) -> Holder | None:
        """Who the file says holds the lock; None if it names nobody."""
        try:
            return cls(**json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_same(self, other: Holder) -> bool:
        """Whether both are one process."""
        return replace(self, beat=0) == replace(other, beat=0)

    def lives(self) -> bool | None:
        """Whether it does; None if that cannot be seen from here."""
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
    """Looks on whether a lock is held, without touching it.

    Args:
        path: the lock's file.
        clock: seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._seen: Holder | None = None
        self._since = 0.0

    def holder(self) -> Holder | None:
        """Who holds the lock; None if nobody does: one on another node counts until its record is seen to rest."""
        found = Holder.read(self._path)
        if found != self._seen:
            self._seen, self._since = found, self._clock()
        lives = found is not None and found.lives()
        if lives is None and self._clock() - self._since >= SILENT_SECONDS:
            return None
        return None if lives is False else found


class Lock:
    """A lock that this process holds, until it ends or forgets it."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file, self._own = path, file, Holder.own()
        _write(file, self._own)
        weakref.finalize(self, _release, path, file, self._own)

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
        path: its file; made if there is none.
        patience: seconds to wait for a run that holds it.
        tell: is told once that this waits, and for whom.
        stop: whether to wait no more.
        clock: seconds.

    Raises:
        HeldError: another run held it all the time.
        OSError: the file cannot be opened or written.
    """
    file: BinaryIO = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b", buffering=0)
    watch, end, told = LockWatch(path, clock), clock() + patience, False
    while (held := _held(file, watch)) is not None:
        if clock() >= end or stop():
            file.close()
            raise HeldError(held)
        if not told:
            tell(f"{held}; waiting for its end, {patience:g} s at most")
        told = True
        time.sleep(min(_POLL_SECONDS, max(0.0, end - clock())))
    return Lock(path, file)


def _held(file: BinaryIO, watch: LockWatch) -> str | None:
    """Say who holds the lock; None: nobody, or this process by now."""
    holder = watch.holder()
    who = f" ({holder})" if holder else ""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return f"another run is writing there now{who}"
    except OSError:
        pass  # this file system has no locks: the record alone tells
    else:
        if holder is not None and holder.boot == _boot():
            return None  # whatever the file system, among processes of one node its locks hold
    return f"another run is writing there now{who}" if holder else None


def _write(file: BinaryIO, holder: Holder) -> None:
    os.pwrite(file.fileno(), json.dumps(asdict(holder)).ljust(_RECORD_BYTES - 1).encode() + b"\n", 0)
    os.fsync(file.fileno())


def _release(path: Path, file: BinaryIO, own: Holder) -> None:
    """Let nobody wait for this process; a fork of it leaves the lock alone."""
    with suppress(OSError), file:
        found = Holder.read(path)
        if own.pid == os.getpid() and found is not None and found.is_same(own):
            os.ftruncate(file.fileno(), 0)


def _namespace() -> int:
    """0 where there are no namespaces."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _boot() -> str:
    """The id of this node's start; empty where there is none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
