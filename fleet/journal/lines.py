"""Lines of a journal as they stand in the file, for readers who need few of them, and those at once.

`read_journal` checks and takes apart every line. Most lines of a long journal are epochs and checkpoints that are
over: these functions tell kind, job and time of a line as the writer lays it out without taking the rest apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fleet.journal.journal import MOST_LINE_BYTES, MOST_SKIPPED_BYTES, event_of
from preprocess.files.reading import open_file

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
    """Where the next line begins, as far as this is looked for; 0: nowhere yet."""
    limit = file.tell() + MOST_SKIPPED_BYTES
    while piece := file.readline(_MANY_BYTES):
        if piece.endswith(b"\n"):
            return file.tell()
        if file.tell() >= limit:
            return file.seek(0, 2)
    return 0


def job_of(line: bytes) -> bytes:
    """The job of a line as it stands there, between its quotes: equal for lines of one job; empty if it has none."""
    start = line.find(b'"job":"') + 7
    name = line[start : line.find(b'"', start)] if start > 6 else b""
    if b"\\" in name:
        found = _JOB.search(line)
        return b"" if found is None else found[1]
    return name


def second_of(line: bytes) -> float:
    """The second of the run at which a line was written. ValueError: it does not say."""
    if not line.startswith(b'{"t":'):
        event = event_of(line)
        if event is None:
            raise ValueError("no event")
        return event.t
    return float(line[5 : line.index(b",", 5)])


def devices_of(line: bytes) -> tuple[int, ...]:
    """The devices that a line names. ValueError: it names none, or what it names are no numbers."""
    start = line.index(b'"devices":[') + 11
    numbers = line[start : line.index(b"]", start)]
    return tuple(map(int, numbers.split(b","))) if numbers else ()


def job_name(job: bytes) -> str:
    """The name of a job that `job_of` told."""
    try:
        return job.decode() if b"\\" not in job else str(json.loads(b'"' + job + b'"'))
    except ValueError:  # fleet writes no such name
        return job.decode(errors="replace")
