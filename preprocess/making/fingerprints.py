"""Fingerprints of data sets: what a run notes of its data, and holds against them when it goes on."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from preprocess.making.dataset import Dataset
from preprocess.samples.order import HELD_OUT, TRAIN, SampleGenerator, seed_global_generators
from preprocess.samples.stream import SourceSpec
from preprocess.sources.file_fingerprints import file_changes, fingerprint_files, unproved
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
    """What differs between two fingerprints of a data set, a sentence each."""
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
    """What cannot be told for sure: large files of equal size with other times, of which blocks were compared."""
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
    """All places of samples once, in an order that is drawn, and even from the begin on."""
    start = int.from_bytes(hashlib.blake2b(f"{SEED} {kind}".encode(), digest_size=8).digest(), "big") % length
    step = max(1, round(length * 0.6180339887498949))
    while math.gcd(step, length) != 1:
        step += 1
    return ((start + number * step) % length for number in range(length))
