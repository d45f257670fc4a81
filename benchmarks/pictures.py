"""Photographs that nobody took: JPEG files of a given size, and the data set that reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

from preprocess import DatasetSpec, SourceSpec
from preprocess.conversion.convert import convert

__all__ = ["FILE_SIDE", "SIDE", "pictures", "write_encoded", "write_pictures"]

SIDE = 224
_FIXED: tuple[Any, ...] = ({"resize": {"shortest": 256}}, {"center_crop": {"size": SIDE}})
FILE_SIDE = 256


def write_pictures(folder: Path, count: int, quality: int = 90, size: tuple[int, int] = (FILE_SIDE, FILE_SIDE)) -> Path:
    """Write pictures of 256 x 256, or another (height, width), into an HDF5 file of encoded bytes; return its path.

    Each is a smooth landscape of random waves with grain, so that a JPEG takes about as many bytes as a photograph.
    """
    write_encoded(folder / "pictures" / "all", range(count), quality, size)
    path = folder / "pictures.h5"
    convert(folder / "pictures", path, workers=1)
    return path


def write_encoded(
    folder: Path, numbers: Iterable[int], quality: int = 90, size: tuple[int, int] = (FILE_SIDE, FILE_SIDE)
) -> None:
    """Write the pictures of these numbers as JPEG files into a folder of their own."""
    folder.mkdir(parents=True)
    for number in numbers:
        image = _landscape(np.random.default_rng(number), *size)
        (folder / f"{number:06d}.jpg").write_bytes(simplejpeg.encode_jpeg(image, quality=quality))


def pictures(path: Path, name: str = "pictures") -> DatasetSpec:
    """The data set: decoded, cut out at random, resized to 224 x 224 and flipped, as networks on ImageNet are fed.

    The same pictures are the held-out ones, scaled and cut out of the middle.
    """
    transforms: tuple[Any, ...] = ({"random_resized_crop": {"size": SIDE}}, {"flip": {}})
    source = SourceSpec("hdf5", {"path": str(path)})
    return DatasetSpec(name, source, source, transforms, _FIXED)


def _landscape(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    rows, columns = np.mgrid[0:height, 0:width] / FILE_SIDE
    image = np.zeros((height, width, 3))
    for channel in range(3):
        for frequency in (1, 2, 5, 11, 23):
            across, down, phase = rng.normal(0, frequency, 2).tolist() + [rng.uniform(0, 6.28)]
            image[..., channel] += np.sin(6.28 * (across * columns + down * rows) + phase) / frequency**0.5
    image = 128 + 40 * image + rng.normal(0, 3, image.shape)
    return image.clip(0, 255).astype(np.uint8)
