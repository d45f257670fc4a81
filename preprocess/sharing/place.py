"""Where a service is found: a socket and a lock in a folder of this user's."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

_LONGEST_ADDRESS = 107  # bytes; unix(7): 108 with the one that ends it
_LOCK_TICK_SECONDS = 0.02


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
            PermissionError: somebody else owns the folder, or may write to it.
            ValueError: the path of the folder is too long for a socket.
        """
        base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
        folder = base / f"shared-loader-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise PermissionError(f"{folder} is not this user's alone: remove it, or set XDG_RUNTIME_DIR to another")
        place = cls(folder, name)
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
        """What the service and its preprocessors print."""
        return self.folder / f"{self._digest}.log"

    @contextmanager
    def lock(self, timeout: float = 60.0) -> Iterator[int]:
        """Be the only process that starts or ends this service; waits for the one that does it now.

        Yields:
            a descriptor: the lock is held until all its copies in forked processes are closed, too.

        Raises:
            TimeoutError: another process has had the lock for so many seconds.
        """
        descriptor = os.open(self.folder / f"{self._digest}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
