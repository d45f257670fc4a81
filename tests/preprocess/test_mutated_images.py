"""Damaged pictures are refused or decoded, and never end the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.samples.errors import DecodeError
from preprocess.transforms.decode import decode_picture, image_size
from tests.preprocess.support import mutations
from tests.preprocess.support.photographs import encoded, photograph

ROOT = Path(__file__).resolve().parents[2]
PNGS = [
    encoded(photograph(40, 50), "PNG"),
    encoded(photograph(40, 50)[..., 0], "PNG"),
    encoded(np.dstack([photograph(20, 30), photograph(20, 30)[..., :1]]), "PNG", compress_level=0),
]


def decode_damaged(libraries: str, first: int, count: int, folder: Path) -> dict[str, int]:
    """Decode the damaged JPEGs of these seeds in a process of its own and return how many came out how."""
    progress = folder / "seed"
    command = [sys.executable, mutations.__file__, libraries, str(first), str(count), str(progress)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500)
    seed = progress.read_text().strip() if progress.exists() else "none"
    assert done.returncode == 0, f"exit {done.returncode} at seed {seed} of {libraries}\n{done.stderr[-3000:]}"
    counts: dict[str, int] = json.loads(done.stdout)
    assert sum(counts.values()) == count
    return counts


@pytest.mark.parametrize(
    ("libraries", "count"),
    [
        ("simplejpeg,PIL.Image", 400),
        ("cv2,PIL.Image", 150),
        ("PIL.Image", 150),
        pytest.param("simplejpeg,PIL.Image", 10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1600)]),
        pytest.param("cv2,PIL.Image", 2_000, marks=[pytest.mark.slow, pytest.mark.timeout(1600)]),
        pytest.param("PIL.Image", 2_000, marks=[pytest.mark.slow, pytest.mark.timeout(1600)]),
    ],
)
def test_damaged_jpegs_are_refused_or_decoded(libraries: str, count: int, tmp_path: Path) -> None:
    counts = decode_damaged(libraries, 0, count, tmp_path)
    print(libraries, counts)
    kinds = {kind.partition(":")[0] for kind in counts}
    assert len(kinds) == 7 and sum(number for kind, number in counts.items() if kind.endswith("refused")) > count / 4
    assert counts["cut off: refused"] > 0 and "cut off: decoded" not in counts
    assert counts["flipped in the header: decoded"] > 0


def test_damage_is_a_function_of_its_seed() -> None:
    pictures = mutations.jpegs()
    assert all(decode_picture(picture).shape[2] == 3 for picture in pictures)
    for seed in range(50):
        kind, content = mutations.mutated(pictures, seed)
        assert (kind, content) == mutations.mutated(pictures, seed) and content not in pictures


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A PNG with bytes changed, taken out or put in; at times with its checksums mended, so that it is read further."""
    content = bytearray(draw(st.sampled_from(PNGS)))
    for _ in range(draw(st.integers(1, 5))):
        place = draw(st.integers(0, len(content) - 1))
        change = draw(st.sampled_from(["set", "insert", "delete", "cut"]))
        if change == "set":
            content[place] = draw(st.integers(0, 255))
        elif change == "insert":
            content[place:place] = draw(st.binary(min_size=1, max_size=20))
        elif len(content) > 100:
            del content[place : place + draw(st.integers(1, 30)) if change == "delete" else None]
        content = content or bytearray(1)
    return checked(bytes(content)) if draw(st.booleans()) else bytes(content)


def checked(content: bytes) -> bytes:
    """Mend the checksum of each chunk, as far as chunks can be told."""
    mended, place = bytearray(content), 8
    while place + 12 <= len(content):
        length = int.from_bytes(content[place : place + 4], "big")
        end = place + 8 + length
        if end + 4 > len(content):
            break
        mended[end : end + 4] = zlib.crc32(content[place + 4 : end]).to_bytes(4, "big")
        place = end + 4
    return bytes(mended)


@settings(deadline=None, max_examples=400)
@given(damaged(), st.sampled_from([1, 3]))
def test_damaged_pngs_are_refused_or_decoded(content: bytes, channels: int) -> None:
    try:
        image = decode_picture(content, channels)
    except DecodeError:
        return
    assert image.dtype == np.uint8 and image.shape == (*image_size(content), channels)


@settings(deadline=None, max_examples=300)
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF", b"II*\0", b"BM", b"P6 "]),
)
def test_nonsense_is_refused_or_decoded(content: bytes, head: bytes) -> None:
    try:
        image = decode_picture(head + content)
    except DecodeError:
        return
    assert image.dtype == np.uint8 and image.ndim == 3
