"""Real image files for the tests of sources and conversions."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import simplejpeg
from PIL import Image


def smooth(seed: int, height: int = 20, width: int = 24, channels: int = 3) -> np.ndarray:
    """An image of gentle colours, (height, width, channels) of uint8."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, channels), np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).reshape(height, width, channels)


def encoded(image: np.ndarray, ending: str) -> bytes:
    """The bytes of a file of that format: JPEG by simplejpeg, PNG by OpenCV, others by Pillow."""
    if ending in ("jpg", "jpeg"):
        return bytes(simplejpeg.encode_jpeg(image, quality=95, colorspace="RGB" if image.shape[2] == 3 else "GRAY"))
    if ending == "png":
        return bytes(cv2.imencode(".png", image[..., ::-1])[1])
    file = io.BytesIO()
    Image.fromarray(image).save(file, {"tif": "TIFF"}.get(ending, ending.upper()))
    return file.getvalue()


def make_folder(
    root: Path, classes: Sequence[str], count: int, endings: Sequence[str] = ("jpg",), sizes: Sequence[int] = (20,)
) -> list[tuple[bytes, int]]:
    """Write root/CLASS/NNN.ENDING; return (content, label) in the order that a source should have."""
    samples = []
    for label, name in enumerate(sorted(classes)):
        (root / name).mkdir(parents=True)
        for i in range(count):
            ending = endings[i % len(endings)]
            content = encoded(smooth(1000 * label + i, sizes[i % len(sizes)]), ending)
            (root / name / f"{i:03}.{ending}").write_bytes(content)
            samples.append((content, label))
    return samples


def make_shard(path: Path, samples: Sequence[tuple[str, bytes, object]], ending: str = "jpg") -> None:
    """Write a tar shard of (key, content, label); a label is written to KEY.cls, or KEY.json if it is a dictionary."""
    with tarfile.open(path, "w") as shard:
        for key, content, label in samples:
            add(shard, f"{key}.{ending}", content)
            if isinstance(label, dict):
                add(shard, f"{key}.json", json.dumps(label).encode())
            else:
                add(shard, f"{key}.cls", str(label).encode())


def add(shard: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a member."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    shard.addfile(member, io.BytesIO(content))
