"""What the model of a power cut says may be left of a folder: it would show a sync that is missing."""

from __future__ import annotations

import random

from tests.faults.support.power import Disk, choices, disk_after, synced
from tests.faults.support.shim import Call

FOLDER = Disk({"/run": -1})


def call(kind: str, path: str, inode: int = 7, to: str = "", data: bytes = b"", offset: int = 0) -> Call:
    return Call(kind, inode, offset, path, to, data)


CREATE, WRITE = call("create", "/run/.new"), call("write", "/run/.new", data=b"whole")
RENAME = call("rename", "/run/.new", to="/run/file")
SYNC, SYNC_FOLDER = call("sync", "/run/.new"), call("sync", "/run", inode=1)


def left(*calls: Call) -> set[bytes | None]:
    """What a cut after these calls may leave under the file's name; None: no such name."""
    found = choices(calls, len(calls), random.Random(1))
    return {disk_after(FOLDER, calls, choice).content.get("/run/file") for choice in found}


def test_a_file_that_was_written_whole_is_there_or_not() -> None:
    assert left(CREATE, WRITE, SYNC, RENAME) == {None, b"whole"}
    assert left(CREATE, WRITE, SYNC, RENAME, SYNC_FOLDER) == {b"whole"}


def test_a_file_that_was_not_synced_may_be_empty_torn_or_zeros() -> None:
    assert left(CREATE, WRITE, RENAME, SYNC_FOLDER) == {b"", b"wh", bytes(5), b"whole"}


def test_a_write_after_the_sync_is_not_certain() -> None:
    calls = [CREATE, WRITE, SYNC, call("write", "/run/.new", data=b"!", offset=5)]
    assert synced(calls, 4) == {1}


def test_what_lies_in_a_lost_folder_is_lost() -> None:
    calls = [call("mkdir", "/run/in", inode=9), call("create", "/run/in/file"), call("sync", "/run/in", inode=9)]
    kept = {tuple(disk_after(FOLDER, calls, choice).content) for choice in choices(calls, 3, random.Random(1))}
    assert kept == {("/run",), ("/run", "/run/in", "/run/in/file")}
