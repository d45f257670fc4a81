"""The four IDX files of Fashion-MNIST; where they are not, files of the same shapes, of pictures that can be learnt."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from preprocess.samples.layout import Array
from preprocess.sources.arrays import read_idx

SPEC = Path(__file__).resolve().parents[1] / "examples" / "fashion.yaml"
COUNTS = {"train": 60_000, "held_out": 10_000}
FASHION = "Fashion-MNIST"
SIDE, CLASSES = 28, 10
CHUNK = 1000
NOISE = 40.0
Files = dict[str, dict[str, str]]


def fashion_files(folder: Path, counts: dict[str, int] | None = None) -> tuple[Files, str]:
    """The files of `examples/fashion.yaml`, or stand-ins that are written into the folder.

    Args:
        counts: pictures to write, by part, whether or not the files are there; None: as many as Fashion-MNIST has.

    Returns:
        Part -> "images" and "labels" -> path; and what they are, for people.
    """
    if counts is None and is_fashion_there():
        return _published(), FASHION
    written = {part: _write(folder, part, count) for part, count in (counts or COUNTS).items()}
    return written, "pictures drawn in Fashion-MNIST's shapes"


def cut_files(folder: Path, counts: dict[str, int]) -> tuple[Files, str]:
    """The first pictures of each part, so many, as files of their own in the folder; returns as `fashion_files`."""
    files, what = fashion_files(folder)
    cut = {}
    for part, count in counts.items():
        cut[part] = {
            kind: write_idx(folder / f"{part}-{kind}-cut.gz", np.array(read_idx(path)[:count]))
            for kind, path in files[part].items()
        }
    return cut, what


def is_fashion_there() -> bool:
    """Whether the published files are here, where the example names them or in the folder `FASHION_MNIST`."""
    return all(Path(path).exists() for files in _published().values() for path in files.values())


def _published() -> Files:
    data: dict[str, Any] = yaml.safe_load(SPEC.read_text())["data"]["fashion"]
    known: Files = {part: dict(data[part]["arguments"]) for part in COUNTS}
    if "FASHION_MNIST" not in os.environ:
        return known
    here = Path(os.environ["FASHION_MNIST"])
    return {part: {key: str(here / Path(path).name) for key, path in known[part].items()} for part in known}


def _write(folder: Path, part: str, count: int) -> dict[str, str]:
    """Pictures of CLASSES patterns with noise; seed path ("fashion", part)."""
    draw = np.random.default_rng([*b"fashion", *part.encode()])
    patterns = np.random.default_rng([*b"fashion"]).uniform(60, 200, (CLASSES, SIDE // 4, SIDE // 4))
    patterns = patterns.repeat(4, axis=1).repeat(4, axis=2)
    labels = draw.integers(0, CLASSES, count).astype(np.uint8)
    images = np.empty((count, SIDE, SIDE), np.uint8)
    for begin in range(0, count, CHUNK):
        of = labels[begin : begin + CHUNK]
        images[begin : begin + CHUNK] = (patterns[of] + draw.normal(0, NOISE, (len(of), SIDE, SIDE))).clip(0, 255)
    return {
        "images": write_idx(folder / f"{part}-images.gz", images),
        "labels": write_idx(folder / f"{part}-labels.gz", labels),
    }


def write_idx(path: Path, values: Array) -> str:
    """Bytes in the IDX format, gzipped, as the published files are."""
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(head + values.tobytes(), compresslevel=1))
    return str(path)
