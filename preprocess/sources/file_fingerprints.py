"""Fingerprints of the files that a source is made of: by them a run sees that its data are others.

All files together of at most MOST_WHOLE bytes are digested whole, so that each byte counts. Of larger sets small files
are, as far as that suffices, and of some of the others blocks at drawn places; the sizes of all count. Times are noted,
and alone are no change: a copy has others.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from preprocess.files.reading import open_file

MOST_FILES = 10_000
"""Of a source; further ones are not looked at."""
MOST_NAMED = 512
"""Files that are noted one by one; of the others a digest of their names and sizes is."""
MOST_WHOLE = 64 << 20
BLOCK, BLOCKS = 1 << 16, 16
MOST_IN_BLOCKS = 64
_INDEX = ".index"  # fleet writes them beside tar shards
_SKIPPED = ("__pycache__",)

FilePrint = Mapping[str, Any]


def fingerprint_files(arguments: Any, ignored: Iterable[str] = ()) -> dict[str, Any]:
    """The fingerprint of all files to which texts in a source's arguments lead, folders and patterns too.

    Args:
        ignored: folders of which nothing counts, such as the run's own.

    Returns:
        `files`: path -> [size, time of its last change in ns, digest or None]; `rest`: [count, bytes, digest of names
        and sizes] of further ones; `more`: whether there were still more.
    """
    found, more = _found(arguments, {os.path.abspath(path) for path in ignored})
    total = sum(size for _, size, _ in found)
    entries, left, blocks = {}, MOST_WHOLE, MOST_IN_BLOCKS
    for path, size, changed in found[:MOST_NAMED]:
        digest = None
        if total <= MOST_WHOLE or size <= left and size <= MOST_WHOLE // BLOCKS:
            digest, left = _digest(path, size, whole=True), left - size
        elif blocks:
            digest, blocks = _digest(path, size, whole=False), blocks - 1
        entries[path] = [size, changed, digest]
    return {"files": entries, "rest": _rest(found[MOST_NAMED:], total <= MOST_WHOLE), "more": more}


def file_changes(before: FilePrint, now: FilePrint, grows: bool = False) -> Iterator[str]:
    """What differs between two fingerprints of files, a sentence each.

    Args:
        grows: whether files may come anew, as where a data set keeps something there itself.
    """
    old, new = before["files"], now["files"]
    for path in dict.fromkeys([*old, *new]):
        if path not in new:
            yield f"{path} is no longer there"
        elif path not in old:
            if not grows:
                yield f"{path} is new"
        elif old[path][0] != new[path][0]:
            yield f"{path} has {new[path][0]:,} bytes, and had {old[path][0]:,}"
        elif None not in (old[path][2], new[path][2]) and old[path][2] != new[path][2]:
            yield f"{path} has the same size and other bytes"
    if before["rest"] != now["rest"] and not grows:
        further = f"{_told(now['rest'])}, and were {_told(before['rest'])}"
        yield f"of further files there are {further}; their names, sizes or bytes differ"


def unproved(before: FilePrint, now: FilePrint) -> list[str]:
    """Files of equal size whose times differ, and whose bytes were not all compared."""
    whole = sum(size for size, _, _ in now["files"].values()) + (now["rest"] or [0, 0])[1] <= MOST_WHOLE
    old, new = before["files"], now["files"]
    return [
        path
        for path in old.keys() & new.keys()
        if not whole and old[path][1] != new[path][1] and new[path][0] > MOST_WHOLE // BLOCKS
    ]


def _told(rest: Any) -> str:
    return "none" if rest is None else f"{rest[0]:,} of {rest[1]:,} bytes"


def _found(arguments: Any, ignored: set[str]) -> tuple[list[tuple[str, int, int]], bool]:
    """Path, size and time of each file, by path; and whether there are more than count."""
    found: dict[str, tuple[int, int]] = {}
    for text in _texts(arguments):
        for path in _files(text, ignored):
            if len(found) >= MOST_FILES:
                return [(path, *found[path]) for path in sorted(found)], True
            try:
                told = os.stat(path)
            except OSError:
                continue
            found[path] = (told.st_size, told.st_mtime_ns)
    return [(path, *found[path]) for path in sorted(found)], False


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for child in value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ():
        yield from _texts(child)


def _files(text: str, ignored: set[str]) -> Iterator[str]:
    if not text or "\0" in text or len(text) > 4096:
        return
    paths = [text] if os.path.exists(text) else sorted(glob.glob(text)) if glob.has_magic(text) else []
    for path in paths:
        if os.path.isfile(path):
            yield path
        elif os.path.isdir(path):
            yield from _below(path, ignored)


def _below(folder: str, ignored: set[str]) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED and name[:1] != "." and os.path.abspath(os.path.join(place, name)) not in ignored
        )
        yield from (os.path.join(place, name) for name in sorted(names) if not name.endswith(_INDEX))


def _digest(path: str, size: int, whole: bool) -> str | None:
    """A digest of a file's bytes, or of blocks at its begin, its end and places drawn by its name and size."""
    found = hashlib.blake2b(digest_size=16)
    try:
        with open_file(path) as file:
            if whole or size <= BLOCK * BLOCKS:
                while piece := file.read(1 << 20):
                    found.update(piece)
                return found.hexdigest()
            for number in range(BLOCKS):
                drawn = hashlib.blake2b(f"fingerprint {os.path.basename(path)} {size} {number}".encode(), digest_size=8)
                places = {0: 0, 1: size - BLOCK}
                file.seek(places.get(number, int.from_bytes(drawn.digest(), "big") % (size - BLOCK)))
                found.update(file.read(BLOCK))
    except OSError:  # whoever reads it in earnest tells
        return None
    return found.hexdigest()


def _rest(files: list[tuple[str, int, int]], whole: bool) -> list[Any] | None:
    if not files:
        return None
    found = hashlib.blake2b(digest_size=16)
    for path, size, _ in files:
        found.update(f"{path}\0{size}\0{_digest(path, size, True) if whole else ''}\n".encode())
    return [len(files), sum(size for _, size, _ in files), found.hexdigest()]
