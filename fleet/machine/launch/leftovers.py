"""What killed runs leave on a node: MPI's files in shared memory, the launcher's folders; and their removal.

Each process of a run writes a note of the files that it and MPI made, and takes it away when it ends in good order.
A note whose process is dead is a killed run's, and so are the files in it: names alone would not tell them from those
of other MPI programs.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from preprocess.files.reading import read_json
from preprocess.files.writing import leave_note
from preprocess.ring.shared_memory import is_alive, namespace, own_identity, shared_memory_available

_MOST_BYTES = 1 << 20  # of a note
# Shared memory of Open MPI (5, 4, windows) and MPICH. Most of it loses its name as soon as it is mapped.
MPI_FILES = ("sm_segment.", "vader_segment.", "open_mpi.", "mpich")
# Folders: of Open MPI's launcher, by its process id, and of our own launch.
SESSION_FOLDER = re.compile(r"ompi\.(\d+)")
LAUNCH_FOLDER = re.compile(r"fleet-[a-z0-9_]{8}")


@dataclass(frozen=True)
class Note:
    """What a process of a run has made outside the run directory.

    Attributes:
        path: path of the note.
        pid, started: the process, see `preprocess.ring.shared_memory`.
        namespace: in which its id means anything.
        made: paths of files in shared memory, and of folders.
    """

    path: Path
    pid: int
    started: int
    namespace: int
    made: tuple[Path, ...]

    @property
    def is_dead(self) -> bool:
        """The process is known to have ended without taking its note away."""
        return self.namespace == namespace() and not is_alive(self.pid, self.started)

    def remove(self) -> None:
        """The process ends in good order."""
        with suppress(OSError):  # another user's, where it could not be written
            self.path.unlink()


def write_note(made: Iterable[Path]) -> Note:
    """Note what this process has made. Where that cannot be written, a killed run's files just stay."""
    pid, started = own_identity()
    path = _place() / f"fleet.{os.geteuid()}.{pid}.note"
    note = Note(path, pid, started, namespace(), tuple(made))
    content = {"pid": pid, "started": started, "namespace": note.namespace, "made": list(map(str, note.made))}
    with suppress(OSError):
        leave_note(path, json.dumps(content), mode=0o600)
    return note


def made_by_mpi() -> list[Path]:
    """The files in shared memory, and the launcher's folder, that MPI has mapped into this process."""
    place, found = _place(), set()
    for path in _mapped("self"):
        if path.parent == place and path.name.startswith(MPI_FILES):
            found.add(path)
        if "/ompi." in str(path):  # most are libraries, hundreds of them
            found.update(folder for folder in path.parents if SESSION_FOLDER.fullmatch(folder.name))
    return sorted(found)


def sweep() -> str:
    """Remove what this user's killed runs left on this node; returns a line that says so, or nothing.

    What a living process maps, or notes as its own, stays. Processes that come at the same time leave it to the first.
    """
    with suppress(OSError):
        place = os.open(_place(), os.O_RDONLY)
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _sweep()
        finally:
            os.close(place)
    return ""


def _sweep() -> str:
    notes = list(_notes())
    dead = [note for note in notes if note.is_dead]
    if not dead:
        return ""
    held = {path for note in notes if note not in dead for path in note.made} | _mapped_by_anyone()
    freed = files = folders = 0
    for path in sorted({path for note in dead for path in note.made}):
        if _is_held(path, held):
            continue
        size = _remove_file(path)
        if size is not None:
            freed, files = freed + size, files + 1
        folders += _remove_folder(path)
    for note in dead:
        if not any(path.exists() for path in note.made):
            note.remove()
    if not files + folders:
        return ""
    mib = freed / 2**20
    return (
        f"removed what killed runs had left on {socket.gethostname()}: "
        f"{files} files of shared memory ({mib:.1f} MiB) and {folders} folders"
    )


def _place() -> Path:
    return Path(shared_memory_available()[1])


def _notes() -> Iterator[Note]:
    """This user's notes; whatever else bears such a name is passed over."""
    for path in _place().glob(f"fleet.{os.geteuid()}.*.note"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            if _is_own(path, stat.S_ISREG):
                content = read_json(path, _MOST_BYTES)
                made = tuple(Path(text) for text in content["made"])
                yield Note(path, int(content["pid"]), int(content["started"]), int(content["namespace"]), made)


def _is_own(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """Return whether it is this user's, and of the kind itself, not a link to one."""
    found = path.lstat()
    return found.st_uid == os.geteuid() and is_kind(found.st_mode)


def _is_held(path: Path, held: set[Path]) -> bool:
    return path in held or any(path in other.parents for other in held)


def _remove_file(path: Path) -> int | None:
    """Remove a file of shared memory; returns the bytes that it took, None if there was none to remove."""
    with suppress(OSError):
        if path.parent == _place() and path.name.startswith(MPI_FILES) and _is_own(path, stat.S_ISREG):
            size = path.lstat().st_blocks * 512
            path.unlink()
            return size
    return None


def _remove_folder(path: Path) -> bool:
    """Remove a launcher's folder, unless the launcher lives; returns whether there was one to remove."""
    session = SESSION_FOLDER.fullmatch(path.name)
    if session is None and LAUNCH_FOLDER.fullmatch(path.name) is None:
        return False
    with suppress(OSError):
        if _is_own(path, stat.S_ISDIR) and not (session is not None and Path("/proc", session[1]).exists()):
            shutil.rmtree(path)
            return True
    return False


def _mapped_by_anyone() -> set[Path]:
    """The files that processes have mapped, as far as this user may see them; only this user's could map ours."""
    found: set[Path] = set()
    for process in Path("/proc").glob("[0-9]*"):
        found.update(_mapped(process.name))
    return found


def _mapped(process: str) -> Iterator[Path]:
    """The files that a process has mapped, each once; none where that cannot be known."""
    with suppress(OSError):
        lines = Path("/proc", process, "maps").read_text(errors="replace").splitlines()
        named = {columns[5] for line in lines if len(columns := line.split(maxsplit=5)) == 6}
        yield from (Path(name) for name in named if name.startswith("/") and not name.endswith("(deleted)"))
