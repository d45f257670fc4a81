"""The journal: append-only JSON lines, the truth of a run. Report, progress and resume are computed from it.

`Journal` writes it and `read_journal` checks and parses every line. Most lines of a long journal are epochs and
checkpoints that are over: `new_lines`, `job_of`, `second_of` and `devices_of` are for readers who need few of them, and
tell kind, job and time of a line as the writer lays it out without parsing the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from fleet.journal.events import Checkpoint, Done, Event, Failed, Paused, Session, Stopped, Warned, parse
from preprocess.files.reading import open_file
from preprocess.files.writing import naming, open_to_append, sync_folder


class JournalError(ValueError):
    """An event holds what no line of the journal can; the text names it."""


E = TypeVar("E", bound=Event)
Listener = Callable[[Event], None]


# The last key of a line: the checksum of the line without it. Lines of older runs have none.
_SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"\}$')
MOST_LINE_BYTES = 16 << 20  # fleet writes no longer line; read whole, one could take the machine's memory
MOST_SKIPPED_BYTES = 1 << 30  # of one line; where it goes on, all the rest of the file is taken for it


def read_journal(path: Path) -> Iterator[Event]:
    """Yield the events of `path` in order, as it is when the first is asked for; a missing file has none.

    The last line of a session that was killed may be torn, and is no event. In place of any other line that is not as
    it was written, or has more than MOST_LINE_BYTES, stands a `Warned` that has its number.

    Raises:
        OSError: it is no regular file, or cannot be read.
    """
    last = Event()
    torn = 0
    for number, line in enumerate(_lines(path), 1):
        if not line:
            continue
        event = event_of(line)
        if torn and not isinstance(event, Session):
            yield _damaged(torn, last)
        torn = 0
        if event is not None:
            last = event
            yield event
        elif line.endswith(b"}") or len(line) == MOST_LINE_BYTES:
            yield _damaged(number, last)
        else:
            torn = number


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines without their ends; of one that is too long, the first MOST_LINE_BYTES."""
    try:
        file = open_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    with file:
        left = os.fstat(file.fileno()).st_size  # what is appended meanwhile is left to the next reader
        while left > 0:
            line = piece = file.readline(min(MOST_LINE_BYTES, left))
            size = len(line)
            while piece and size < min(left, MOST_SKIPPED_BYTES) and not piece.endswith(b"\n"):
                piece = file.readline(min(MOST_LINE_BYTES, left - size))
                size += len(piece)
            left = left - size if piece.endswith(b"\n") else 0
            yield line.removesuffix(b"\n")


def event_of(line: bytes) -> Event | None:
    """Return the event of a line; None if it is damaged, or another version's."""
    seal = _SEAL.search(line)
    content = line if seal is None else line[: seal.start()] + b"}"
    if seal is not None and zlib.crc32(content) != int(seal[1], 16):
        return None
    try:
        told = json.loads(content)
        return parse(told) if "crc" not in told else None
    except (TypeError, ValueError, RecursionError):
        return None


def _damaged(number: int, last: Event) -> Warned:
    text = f"line {number} of the journal is damaged; what it said is left out"
    return Warned(t=last.t, unix=last.unix, text=text, damaged_line=number)


def last_second(path: Path) -> float:
    """Return how long the run of a journal has lasted so far, seconds; 0 if there is none."""
    return max((event.t for event in read_journal(path)), default=0.0)


def identity_of(path: Path) -> str:
    """Return by what a run is known again: a digest of its journal's first whole line, "" where there is none."""
    for line in _lines(path):
        if event_of(line) is not None:
            told = {key: value for key, value in json.loads(line).items() if key != "crc"}
            return hashlib.blake2b(repr(sorted(told.items())).encode(), digest_size=16).hexdigest()
    return ""


_SYNCED_BESIDE = (Stopped, Paused, Done, Failed)
"""Durable, and nothing is done at once that would be wrong without the line: a job's checkpoint says as much."""


class Journal:
    """Writes events to disk, durably, and hands each to the listeners; without a path, to the listeners alone.

    A durable event on which the caller acts at once is on disk when `write` returns. Others of them, such as the end of
    a job, are brought there by a thread, all that have come together at a time: the caller does not wait for the disk.

    `seconds()` is the run's own clock: seconds since the first session began, with the gaps between sessions cut out.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._offset = last_second(path) if path else 0.0
        self._origin = clock()
        self._listeners: list[Listener] = []
        self._path = path or Path()
        self._file = _open_after_torn_line(path) if path else None
        self._syncing = None if self._file is None else _Syncing(self._file.fileno())

    def seconds(self) -> float:
        """Return seconds of the run so far, over all its sessions."""
        return self._offset + self._clock() - self._origin

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every event from now on."""
        self._listeners.append(listener)

    def write(self, event: E) -> E:
        """Append an event, at this time. Returns it with its time.

        Raises:
            JournalError: a field holds what JSON cannot.
            OSError: if the line cannot be written (no space left, say), or an earlier one could not be synced.
        """
        event = event.at(round(self.seconds(), 6), round(time.time(), 3))
        if self._file is not None and self._syncing is not None:
            line = _line_of(event)
            with naming(self._path):
                self._syncing.check()
                self._file.write(b'%s,"crc":"%08x"}\n' % (line[:-1], zlib.crc32(line)))
                self._file.flush()
                if event.durable and _may_sync_beside(event):
                    self._syncing.begin()
                elif event.durable:
                    os.fsync(self._file.fileno())
        self._tell(event)
        return event

    def announce(self, event: E) -> E:
        """Tell the listeners alone: for what passes too often, and matters too little, to be kept."""
        event = event.at(self.seconds(), 0.0)
        self._tell(event)
        return event

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    def close(self) -> None:
        """Close the file, once all that is durable is on disk; the journal can be written no more."""
        if self._file is not None and self._syncing is not None:
            self._syncing.end()
            with suppress(OSError):  # of a line that could not be written: `write` has told
                self._file.close()


def _may_sync_beside(event: Event) -> bool:
    """Whether the caller need not wait for the disk. Once a best checkpoint is told, the one before is removed."""
    return isinstance(event, _SYNCED_BESIDE) or (isinstance(event, Checkpoint) and event.best is None)


class _Syncing:
    """Brings a file to the disk in a thread, which begins with the first line that asks for it.

    Args:
        descriptor: of the file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._wanted, self._over = threading.Event(), False
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def begin(self) -> None:
        """Have all that was written until now brought to the disk; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()
        self._wanted.set()

    def check(self) -> None:
        """Raise the OSError of a sync that has failed."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Wait until all is there."""
        self._over = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        over = False
        while not over:
            self._wanted.wait()
            self._wanted.clear()  # what is written from now on asks again
            over = self._over
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                self._error = error
                return


def _open_after_torn_line(path: Path) -> BinaryIO:
    """Open for appending. A killed session may have left half a line: end it, so that it spoils no event of ours."""
    file = open_to_append(path)
    if file.tell() > 0 and not _ends_a_line(path):
        file.write(b"\n")
    sync_folder(path.parent)
    return file


def _ends_a_line(path: Path) -> bool:
    with open_file(path) as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def as_json(event: Event) -> dict[str, Any]:
    """Return an event as the journal has it, read again."""
    told: dict[str, Any] = json.loads(_line_of(event))
    return told


def _line_of(event: Event) -> bytes:
    try:
        return json.dumps(event.told(), separators=(",", ":"), default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise JournalError(f"the event {event.event!r} cannot stand in the journal: {error}") from error


def _plain(value: Any) -> Any:
    """Return JSON for records in an event, mappings that are none of JSON, and NumPy scalars and tuples of them."""
    if is_dataclass(value):
        return vars(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} is of type {type(value).__name__}")


_MANY_BYTES = 1 << 22
_JOB = re.compile(rb'"job":"((?:[^"\\]|\\.)*)"')


def new_lines(path: Path, offset: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """Yield the whole lines of a file from `offset` on, many at once, and where these begin and end.

    Half a line is left out. A line of more than MOST_LINE_BYTES is not read: no bytes stand for it. A file that is
    shorter than `offset` by now is none that was read before: all its lines are new.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it is no regular file, or cannot be read.
    """
    with open_file(path) as file:
        if file.seek(0, 2) < offset:
            offset = 0
        size = _MANY_BYTES
        while True:
            file.seek(offset)
            content = file.read(size)
            whole = content.rfind(b"\n") + 1
            end = offset + whole
            if whole:
                yield content[:whole], offset, end
            elif len(content) < size:
                return
            elif size >= MOST_LINE_BYTES:
                end = _next_line(file)
                if not end:
                    return
                yield b"", offset, end
            offset, size = end, _MANY_BYTES if end > offset else 2 * size


def _next_line(file: BinaryIO) -> int:
    """Return where the next line begins, as far as this is looked for; 0: nowhere yet."""
    limit = file.tell() + MOST_SKIPPED_BYTES
    while piece := file.readline(_MANY_BYTES):
        if piece.endswith(b"\n"):
            return file.tell()
        if file.tell() >= limit:
            return file.seek(0, 2)
    return 0


def job_of(line: bytes) -> bytes:
    """Return the job of a line as the bytes between its quotes, equal for lines of one job; empty: it has none."""
    start = line.find(b'"job":"') + 7
    name = line[start : line.find(b'"', start)] if start > 6 else b""
    if b"\\" in name:
        found = _JOB.search(line)
        return b"" if found is None else found[1]
    return name


def second_of(line: bytes) -> float:
    """Return the second of the run at which a line was written. ValueError: it does not say."""
    if not line.startswith(b'{"t":'):
        event = event_of(line)
        if event is None:
            raise ValueError("no event")
        return event.t
    return float(line[5 : line.index(b",", 5)])


def devices_of(line: bytes) -> tuple[int, ...]:
    """Return the devices that a line names. ValueError: it names none, or what it names are no numbers."""
    start = line.index(b'"devices":[') + 11
    numbers = line[start : line.index(b"]", start)]
    return tuple(map(int, numbers.split(b","))) if numbers else ()


def job_name(job: bytes) -> str:
    """Return the name of a job that `job_of` told."""
    try:
        return job.decode() if b"\\" not in job else str(json.loads(b'"' + job + b'"'))
    except ValueError:  # fleet writes no such name
        return job.decode(errors="replace")
