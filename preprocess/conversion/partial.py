"""The partial file of a conversion, with the record from which it goes on."""

from __future__ import annotations

import fcntl
import io
import json
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from preprocess.conversion.block import MadeBlock
from preprocess.conversion.errors import ConversionError
from preprocess.files.memory import check_claim
from preprocess.files.writing import open_in_place, put_in_place, sync_folder
from preprocess.samples.layout import Array

_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # struct flock of fcntl(2)


class Partial:
    """DST.partial, to which samples are appended, and DST.partial.progress, which says what of it is on the disk.

    The record is one line of JSON on the data and the way they are converted, then one row a sample, with a checksum
    of its own. The samples are fsynced before their rows are written, and the rows are fsynced too: whole rows are
    true, whenever the process or the machine died.

    Attributes:
        path: the partial file.
        done: how many samples are on the disk.

    Args:
        destination: DST.
        header: the data and how they are converted, plain JSON values; a record with another header is not continued.
        row: dtype of a row.
        force: begin anew if there is a record of another conversion.

    Raises:
        ConversionError: it is another conversion's, or another process is at it.
        LaidByOthers, NotAFile: somebody laid something else under these names.
    """

    def __init__(self, destination: Path, header: Mapping[str, Any], row: np.dtype[Any], force: bool) -> None:
        self.path = destination.with_name(destination.name + ".partial")
        self._record_path = destination.with_name(destination.name + ".partial.progress")
        self._checked = np.dtype([("row", row), ("check", "<u4")])
        line = json.dumps(header, sort_keys=True).encode() + b"\n"
        self._data = _locked(self.path)
        try:
            self._record, rows = self._begin(line, row, force)
        except BaseException:
            self._data.close()
            raise
        self.done = len(rows)
        self._noted, self._pending = [rows], list[Array]()

    @property
    def rows(self) -> Array:
        """The rows of the samples that are on the disk, in order."""
        self._noted = [np.concatenate(self._noted)]
        return self._noted[0]

    def write(self, made: MadeBlock, position: int) -> None:
        """Write the samples of a block at a position of the file; `sync` makes them last."""
        remaining = memoryview(made.content)
        while remaining:
            done = os.pwrite(self._data.fileno(), remaining, position)
            remaining, position = remaining[done:], position + done
        self._pending.append(made.rows)

    def sync(self) -> None:
        """Bring all that was written to the disk, and note that it is there."""
        if not self._pending:
            return
        os.fsync(self._data.fileno())
        rows = np.concatenate(self._pending)
        self._record.write(self._with_checks(rows))
        self._record.flush()
        os.fsync(self._record.fileno())
        self.done += len(rows)
        self._noted.append(rows)
        self._pending = []

    def cut(self, end: int) -> None:
        """Forget what lies behind `end`, which was written and not noted."""
        self._data.truncate(end)

    def finish(self, destination: Path) -> None:
        """Give the file, complete by now, its name."""
        os.fsync(self._data.fileno())
        put_in_place(self.path, destination)
        self._record_path.unlink()

    def close(self) -> None:
        """Close the files; whatever is on the disk stays."""
        if not self.done:
            self.path.unlink(missing_ok=True)
            self._record_path.unlink(missing_ok=True)
        self._data.close()
        self._record.close()

    def _begin(self, line: bytes, row: np.dtype[Any], force: bool) -> tuple[BinaryIO, Array]:
        """Open the record; give the rows that it has."""
        record = io.BufferedRandom(open_in_place(self._record_path))  # type: ignore[arg-type]
        try:
            return record, self._continued(record, line, row, force)
        except BaseException:
            record.close()
            raise

    def _continued(self, record: BinaryIO, line: bytes, row: np.dtype[Any], force: bool) -> Array:
        """Bring the record to the end of its whole rows, which are returned."""
        check_claim(self._record_path, os.fstat(record.fileno()).st_size)
        known = record.read()
        head, newline, body = known.partition(b"\n")
        ours = head + newline == line
        theirs = body if newline else self._data.seek(0, os.SEEK_END)
        if theirs and not ours and not force:
            rule = "is of another conversion, of other data or with other options, which was not finished"
            raise ConversionError(str(self.path), rule, "give the same command as then, or --force to begin anew")
        rows = self._whole_rows(body) if ours else np.empty(0, row)
        if not ours:
            self._data.truncate(0)
            record.seek(0)
            record.write(line)
        record.seek(len(line) + len(rows) * self._checked.itemsize)
        record.truncate()
        record.flush()
        os.fsync(record.fileno())
        sync_folder(self.path.parent)
        return rows

    def _whole_rows(self, body: bytes) -> Array:
        """The rows up to the first that is cut off or was not written."""
        table = np.frombuffer(body[: len(body) - len(body) % self._checked.itemsize], self._checked)
        good = 0
        while good < len(table) and zlib.crc32(table["row"][good].tobytes(), 1) == table["check"][good]:
            good += 1
        return table["row"][:good].copy()

    def _with_checks(self, rows: Array) -> bytes:
        table = np.zeros(len(rows), self._checked)
        table["row"] = rows
        table["check"] = [zlib.crc32(row.tobytes(), 1) for row in rows]
        return table.tobytes()


def _locked(path: Path) -> BinaryIO:
    """Open the partial file for this process alone."""
    data = open_in_place(path)
    try:
        fcntl.fcntl(data, fcntl.F_OFD_SETLK, _WHOLE_FILE)  # not flock, which whoever may read the file can hold
    except (BlockingIOError, PermissionError):
        data.close()
        rule = "another process is converting into it"
        raise ConversionError(str(path), rule, "wait for that one, or give another destination") from None
    except OSError:
        pass  # a file system without locks
    return data
