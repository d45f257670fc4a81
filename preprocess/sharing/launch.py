"""The service of a name: where it is found, with what it is started, and the process that it is.

A socket and a lock lie in a folder of this user's. Processes of one user that start at the same time have to agree on
the folder, whatever others lay in a folder for all. So they go through the same names in the same order, and take the
first that is theirs or that they can make, which only one of them can. All names but the first follow from a secret of
the user, so that nobody else knows them.

The process is a Python of its own, or a copy of this process where an object is handed over. A copy has one thread, and
the locks and pools of the others as they were: what they held is never given back. So the copy uses nothing of this
process but the object, and every wait for it has a limit.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import secrets
import signal
import socket
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from preprocess.files.modules import python
from preprocess.files.reading import open_file
from preprocess.files.writing import make_folder, open_in_place, open_to_append, whole_file
from preprocess.ring.lane_memory import RingShape, lane_bytes
from preprocess.samples.layout import SampleLayout
from preprocess.samples.stream import DatasetSpec

_LONGEST_ADDRESS = 107  # bytes; unix(7): 108 with the one that ends it
_LOCK_TICK_SECONDS = 0.02
_SECRET_BYTES = 32
_MOST_NAMES = 100  # of folders that others may hold: to know one they must have seen it, and it must have gone


@dataclass(frozen=True)
class ServicePlace:
    """The files of the service with a given name, of this user, on this node.

    Attributes:
        folder: mode 0700, owned by this user.
        name: what the processes that share have in common.
    """

    folder: Path
    name: str

    @classmethod
    def of(cls, name: str) -> ServicePlace:
        """Return the place, and make its folder if there is none.

        Raises:
            PermissionError: somebody else owns the folder, and this user has no place for a secret.
            ValueError: the path of the folder is too long for a socket.
        """
        place = cls(_own_folder(), name)
        if (length := len(os.fsencode(place.address))) > _LONGEST_ADDRESS:
            text = f"{place.address} has {length} bytes, and a socket's path can have {_LONGEST_ADDRESS}"
            raise ValueError(f"{text}: set XDG_RUNTIME_DIR to a folder with a shorter path")
        return place

    @property
    def address(self) -> Path:
        """The socket; its name is short, since the whole path may not be long."""
        return self.folder / f"{self._digest}.socket"

    @property
    def log(self) -> Path:
        """The file into which the service and its preprocessors print."""
        return self.folder / f"{self._digest}.log"

    @contextmanager
    def lock(self, timeout: float = 60.0) -> Iterator[int]:
        """Be the only process that starts or ends this service; waits for the one that does it now.

        Yields:
            a descriptor: the lock is held until all its copies in forked processes are closed, too.

        Raises:
            TimeoutError: another process has had the lock for so many seconds.
        """
        with open_in_place(self.folder / f"{self._digest}.lock", 0o600) as file:
            descriptor = os.dup(file.fileno())
        try:
            self._take(descriptor, timeout)
            yield descriptor
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    text = f"another process has been starting the service of {self.name!r} for {timeout:g} s"
                    raise TimeoutError(f"{text}; see {self.log}") from None
                time.sleep(_LOCK_TICK_SECONDS)

    def connect(self) -> socket.socket | None:
        """Return a connection to the service, or None if none runs."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(str(self.address))
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        return connection

    def listen(self) -> socket.socket:
        """Return the listening socket of a new service; what a killed one left is taken away. Needs the lock."""
        self.address.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(self.address))
        listener.listen(128)
        return listener

    @property
    def _digest(self) -> str:
        return blake2b(self.name.encode(), digest_size=10).hexdigest()


def _own_folder() -> Path:
    """Return the folder of this user's services on this node, which only this user may enter.

    It lies in XDG_RUNTIME_DIR if there is such a folder, else among temporary files, where anybody may have taken a
    name before.
    """
    given = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    base = given if given.is_dir() and os.access(given, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    plain = base / f"shared-loader-{os.getuid()}"
    secret = _secret(make=False)
    if secret is None:
        if _is_own(plain):
            return plain
        secret = _secret(make=True)
    if secret is None:
        text = (
            f"{plain} is not this user's alone, and no secret for another name can be kept in {_secret_path().parent}"
        )
        raise PermissionError(f"{text}: set XDG_RUNTIME_DIR to a folder of your own")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()  # names that others saw before it are of no use
    for number in range(_MOST_NAMES):
        part = blake2b(f"{boot}{number}".encode(), key=secret, digest_size=8).hexdigest()
        if _is_own(folder := base / f"{plain.name}-{part}"):
            return folder
    raise PermissionError(
        f"{base}: others hold {_MOST_NAMES} names of this user's: set XDG_RUNTIME_DIR to a folder of your own"
    )


def _is_own(folder: Path) -> bool:
    """Say whether a folder is this user's alone; it is made if there is nothing of its name."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _secret(make: bool) -> bytes | None:
    """Return this user's secret, the same for all who ask at the same time; None where there is none.

    Args:
        make: make one if there is none yet, which only one process can.
    """
    path = _secret_path()
    try:
        if make:
            make_folder(path.parent)
            with suppress(FileExistsError), whole_file(path, mode=0o600, replace=False) as file:
                file.write(secrets.token_bytes(_SECRET_BYTES))
        with open_file(path) as file:
            status = os.fstat(file.fileno())
            found = file.read(_SECRET_BYTES)
    except (OSError, RuntimeError):
        return None
    is_own = status.st_uid == os.getuid() and not status.st_mode & 0o077
    return found if is_own and len(found) == _SECRET_BYTES else None


def _secret_path() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shared-loader" / "secret"


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service: how it makes and keeps samples.

    Attributes:
        data: the data set, by names; None for one that is handed over as an object.
        digest: names the data set: loaders of another one are refused.
        workers: preprocessors of the service, each a process.
        lane_samples: samples that a lane holds at least.
        slot_samples: samples of a slot.
        lanes: most lanes that are in use at a time: one for each group of loaders, and one for each that is re-formed.
        loaders: most loaders at a time.
        store: bytes of memory for prepared samples; None: as many as all take, within half of what is free.
        patience: seconds that a loader waits for others at the start of an epoch.
        linger: seconds without a loader after which the service ends.
        paths: where Python looks for modules, so that the service imports what the loader can.
    """

    data: DatasetSpec | None
    digest: str
    workers: int
    lane_samples: int
    slot_samples: int
    patience: float
    linger: float
    paths: tuple[str, ...] = ()
    lanes: int = 32
    loaders: int = 64
    store: int | None = None

    def ring_shape(self, layout: SampleLayout) -> RingShape:
        """Return the dimensions of the ring for samples of a layout."""
        size = lane_bytes(layout, self.lane_samples, self.slot_samples, self.workers)
        return RingShape(self.lanes, -(-size // 4096) * 4096, self.slot_samples, self.loaders, self.workers)


SETTINGS: TypeAdapter[ServiceSettings] = TypeAdapter(ServiceSettings)
"""Reads and writes them as JSON."""


def digest_of(values: Mapping[str, Any]) -> str:
    """Return a digest of what JSON can hold."""
    return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


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
