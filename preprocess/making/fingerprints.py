"""Fingerprints of data sets and their files: what a run notes of its data, and holds against them when it goes on.

All files together of at most MOST_WHOLE bytes are digested whole, so that each byte counts. Of larger sets small files
are, as far as that suffices, and of some of the others blocks at drawn places; the sizes of all count. Times are noted,
and alone are no change: a copy has others.
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from preprocess.files.reading import open_file
from preprocess.making.dataset import Dataset
from preprocess.samples.errors import CorruptLimitError, SampleError
from preprocess.samples.layout import places_in
from preprocess.samples.order import HELD_OUT, TRAIN, SampleGenerator, seed_global_generators
from preprocess.samples.stream import SourceSpec
from preprocess.sources.source import Source

SECONDS, OWN_SECONDS = 0.25, 1.0
"""For so long samples are drawn at the first start, of built-in sources and of a person's own; later as many again."""
MOST_BYTES, MOST_SAMPLES = 64 << 20, 100_000
SEED = "fingerprint"
"""The name of the seed by which the places of samples are drawn."""

DataPrint = Mapping[str, Any]


def fingerprint(dataset: Dataset, known: DataPrint | None = None, ignored: Iterable[str] = ()) -> dict[str, Any]:
    """The fingerprint of an opened data set, of plain values: of its training and of its held-out samples.

    Args:
        known: an earlier one of it, of which as many samples are drawn.
        ignored: folders of which nothing counts, such as the run's own.
    """
    ignored, parts = list(ignored), {}
    for kind, asked in ((TRAIN, dataset.spec.train), (HELD_OUT, dataset.spec.held_out)):
        if asked is not None:
            source, before = dataset.preparation(kind).source, (known or {}).get(kind)
            own = not isinstance(asked.source, str) or ":" in asked.source
            parts[kind] = {
                **_described(asked),
                "count": len(source),
                **fingerprint_files(asked.arguments, ignored),
                **_drawn(source, kind, own, None if before is None else before["drawn"]),
            }
    return parts


def _described(asked: SourceSpec) -> dict[str, Any]:
    told = asked.to_json()
    named = asked.source if isinstance(asked.source, str) else type(asked.source).__qualname__
    return {"source": named, "arguments": json.loads(json.dumps(told["arguments"], default=repr))}


def data_changes(before: DataPrint, now: DataPrint) -> Iterator[str]:
    """Yield the differences between two fingerprints of a data set, a sentence each."""
    names = {TRAIN: "training", HELD_OUT: "held-out"}
    for kind in dict.fromkeys([*before, *now]):
        if kind not in now or kind not in before:
            continue  # another spec, which is told by itself
        old, new = before[kind], now[kind]
        found = [] if is_whole(old) and is_whole(new) else list(file_changes(old, new, ":" in new["source"]))
        if old["count"] != new["count"]:
            found.append(f"it has {new['count']:,} {names[kind]} samples, and had {old['count']:,}")
        elif not found and None not in (old["samples"], new["samples"]) and old["samples"] != new["samples"]:
            found.append(f"of its {names[kind]} samples, {new['drawn']:,} of which were compared, some are others")
        yield from found


def is_whole(part: DataPrint) -> bool:
    """Whether a person's own data set is known by all of its samples, so that files need not be looked at.

    It may write there itself, and open files that no argument names.
    """
    return ":" in part["source"] and part["drawn"] == part["count"] and part["samples"] is not None


def unproved_changes(before: DataPrint, now: DataPrint) -> Iterator[str]:
    """Yield what cannot be told for sure: large files of equal size with other times, of which blocks were compared."""
    for kind in before.keys() & now.keys():
        files = unproved(before[kind], now[kind])
        if files:
            more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
            yield (
                f"{sorted(files)[0]}{more} changed at another time than before; the size is the same, and so are the "
                "blocks and samples of it that were compared"
            )


def _drawn(source: Source, kind: str, own: bool, wanted: int | None) -> dict[str, Any]:
    """A digest of raw samples, before all transforms, at drawn places; None where they come out otherwise each time."""
    generator, length = SampleGenerator(), len(source)

    def read(sample: int) -> tuple[bytes, int]:
        if own:
            seed_global_generators(generator(0, 0, sample, kind))
        return _raw(source, sample)

    found, size, begin, count = hashlib.blake2b(digest_size=16), 0, time.monotonic(), 0
    most = min(length, MOST_SAMPLES if wanted is None else wanted)
    patience = math.inf if wanted is not None else OWN_SECONDS if own else SECONDS
    places = _places(length, kind)
    first = next(_places(length, kind))
    before = read(first)[0] if own else b""
    while count < most and (wanted is not None or size < MOST_BYTES):
        digest, bytes_ = read(next(places))
        found.update(digest)
        size, count = size + bytes_, count + 1
        if time.monotonic() - begin > patience:
            break
    same = not own or read(first)[0] == before
    return {"drawn": count, "samples": found.hexdigest() if same else None}


def _raw(source: Source, sample: int) -> tuple[bytes, int]:
    """A digest of one sample, and its bytes; one that cannot be read has its own."""
    try:
        parts = [np.ascontiguousarray(part) for part in source.read(sample)]
    except Exception:  # the user's code may raise anything; it is told when it is made in earnest
        return b"unreadable", 0
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(f"{part.dtype.str} {part.shape} ".encode())
        found.update(part.tobytes())
    return found.digest(), sum(part.nbytes for part in parts)


def _places(length: int, kind: str) -> Iterator[int]:
    """Yield all places of samples once, in an order that is drawn, and even from the begin on."""
    start = int.from_bytes(hashlib.blake2b(f"{SEED} {kind}".encode(), digest_size=8).digest(), "big") % length
    step = max(1, round(length * 0.6180339887498949))
    while math.gcd(step, length) != 1:
        step += 1
    return ((start + number * step) % length for number in range(length))


_PATIENCE = 0.25
"""Seconds; a sample that takes longer is not made again."""


def unlike_samples(dataset: Dataset, seed: int) -> Iterator[str]:
    """Say of which kinds the first sample is another one when it is made again after the last, in one sentence each.

    What a person's own source or transform draws from global generators is the same each time, as these are seeded for
    each sample. What it draws from a generator of its own, or counts, depends on what was made before.
    """
    for kind, length in ((TRAIN, dataset.length), (HELD_OUT, dataset.held_out)):
        if length and dataset.preparation(kind).has_user_code and _differs(dataset, kind, seed, length):
            yield of_its_own(f"data {dataset.name}", kind)


def of_its_own(what: str, kind: str) -> str:
    """Say that a data set's samples draw from a generator of its own; what: its name, kind: of its samples."""
    return (
        f"{what}: {'training' if kind == TRAIN else 'held-out'} sample 0 is another one when it is made again: its "
        "source or transforms draw from a generator of their own, or count. A run then does not repeat, and networks "
        "may read different samples. Draw from the global generators of torch, NumPy or Python, which are seeded for "
        "each sample"
    )


def _differs(dataset: Dataset, kind: str, seed: int, length: int) -> bool:
    begin = time.monotonic()
    try:
        first = _made(dataset, kind, seed, 0)
        if time.monotonic() - begin > _PATIENCE:
            return False
        _made(dataset, kind, seed, length - 1)
        return _made(dataset, kind, seed, 0) != first
    except (SampleError, CorruptLimitError):  # told when it is made in earnest
        return False


def _made(dataset: Dataset, kind: str, seed: int, sample: int) -> tuple[bytes, bytes]:
    inputs, targets = dataset.layout.empty(1)
    dataset.make(kind, seed, 0, sample, places_in(inputs)(0), targets)
    return np.asarray(inputs[0]).tobytes(), targets.tobytes()


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
    """Yield the differences between two fingerprints of files, a sentence each.

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
