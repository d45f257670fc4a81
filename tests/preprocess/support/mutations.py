"""Damages pictures, each by a seed of its own, and decodes them; run as a program, so that a crash ends it alone.

usage: mutations.py LIBRARIES FIRST COUNT PROGRESS, with LIBRARIES separated by commas. It prints a JSON object.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections import Counter
from importlib import import_module
from typing import Any

import numpy as np

from tests.preprocess.support.photographs import encoded, photograph

#: Address space that a child may take: what a picture of the most pixels needs, and Python, several times over.
_MEMORY = 6 * 2**30


def jpegs() -> list[bytes]:
    """Return whole pictures of several kinds."""
    return [
        encoded(photograph(256, 256), "JPEG", quality=90),
        encoded(photograph(240, 256, 1), "JPEG", quality=75, progressive=True),
        encoded(photograph(256, 200, 2), "JPEG", quality=85, restart_marker_rows=2),
        encoded(photograph(200, 256, 3)[..., 0], "JPEG"),
        encoded(photograph(250, 250, 4), "JPEG", keep_rgb=True),
        encoded(photograph(64, 64, 5), "JPEG", comment=b"a comment", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"),
    ]


def mutated(pictures: list[bytes], seed: int) -> tuple[str, bytes]:
    """Return how the picture of this seed was damaged, and what is left of it."""
    rng = np.random.default_rng([2026, seed])
    content = bytearray(pictures[rng.integers(len(pictures))])
    kind = ("flipped", "flipped in the header", "cut off", "spliced", "removed", "repeated", "zeroed")[rng.integers(7)]
    first, second = sorted(rng.integers(2, len(content), 2))
    if kind.startswith("flipped"):
        end = len(content) if kind == "flipped" else min(700, len(content))
        for place in rng.integers(0, end, rng.integers(1, 12)):
            content[place] ^= int(rng.integers(1, 256))
    elif kind == "cut off":
        del content[first:]
    elif kind == "spliced":
        other = pictures[rng.integers(len(pictures))]
        content[first:] = other[rng.integers(2, len(other)) :]
    elif kind == "removed":
        del content[first:second]
    elif kind == "repeated":
        content[first:first] = content[first : min(second, first + 3000)]
    else:
        content[first : min(second, first + 200)] = bytes(min(second, first + 200) - first)
    return kind, bytes(content)


def outcome(decoding: Any, content: bytes, seed: int) -> str:
    """Decode, and say what came of it; raises if it is neither an error of the right class nor an image."""
    channels = (1, 3)[seed % 2]
    out = np.empty((256, 256, channels), np.uint8)
    try:
        image = decoding.decode_picture(np.frombuffer(content, np.uint8), channels, out)
    except decoding.DecodeError as error:
        assert str(error)
        return "refused"
    assert image.dtype == np.uint8 and image.shape == (*decoding.image_size(content), channels), (seed, image.shape)
    assert (image is out) == (image.shape == out.shape), seed
    return "decoded"


def main(libraries: str, first: str, count: str, progress: str) -> None:
    """Decode the damaged pictures of these seeds, noting in a file which one is next."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    decoding: Any = import_module("preprocess.transforms.decode")
    names = libraries.split(",")
    decoding._library = lambda wanted: import_module(wanted) if wanted in names else None
    pictures, counts = jpegs(), Counter[str]()
    file = os.open(progress, os.O_WRONLY | os.O_CREAT)
    for seed in range(int(first), int(first) + int(count)):
        os.pwrite(file, b"%12d" % seed, 0)
        kind, content = mutated(pictures, seed)
        counts[f"{kind}: {outcome(decoding, content, seed)}"] += 1
    print(json.dumps(dict(sorted(counts.items()))))


if __name__ == "__main__":
    main(*sys.argv[1:])
