"""Inputs whose targets nobody knows: samples to predict. The targets that they give are zeros, for want of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.samples.layout import Array
from preprocess.sources.arrays import Archive, ArraySource, existing, idx_array, open_array
from preprocess.sources.checked_files import bounded, damage_named, try_in_time
from preprocess.sources.encoded_images import (
    IMAGE_EXTENSIONS,
    ImageFolderSource,
    check_channels,
    has_ending,
    images_below,
)
from preprocess.sources.hdf5 import check_numbers, check_rows, open_file, refuse_elsewhere

KINDS = "a folder of images, an image, an .npy, .npz or HDF5 file, or an IDX file"
HDF5 = (".h5", ".hdf5", ".he5")


def open_unlabelled(path: str, inputs: str = "inputs", channels: int = 3) -> ArraySource | ImageFolderSource:
    """Open inputs without targets.

    Args:
        path: a folder with images at any depth, an image, an .npy file, an .npz or HDF5 file, or an IDX file.
        inputs: in an .npz or HDF5 file, the name of the array of inputs, (n, ...).
        channels: 3 or 1, of decoded images.

    Raises:
        SourceError: there is no such file, or it holds no such inputs.
    """
    place, name = Path(path), path.lower()
    if place.is_dir():
        return _images(place, images_below(place, IMAGE_EXTENSIONS), channels)
    if has_ending(name, IMAGE_EXTENSIONS):
        return _images(place.parent, [existing(path).name], channels)
    if name.endswith(".npy"):
        return _arrays(open_array(path), path)
    if name.endswith(".npz"):
        archive = open_array(path)
        return _arrays(archive.array(inputs) if isinstance(archive, Archive) else archive, path)
    if name.endswith(HDF5):
        return _of_hdf5(path, inputs)
    return _arrays(idx_array(path), path)


def _images(root: Path, files: list[str], channels: int) -> ImageFolderSource:
    if not files:
        rule = f"holds no image ({', '.join(IMAGE_EXTENSIONS)})" if root.is_dir() else "there is no such file"
        raise SourceError(str(root), rule, f"give {KINDS}")
    return ImageFolderSource(root, files, [0] * len(files), (), check_channels(channels))


def try_as_told(told: str) -> None:
    """In a process of its own: open an HDF5 file without targets, and read a little of it."""
    bounded(_opened_hdf5, told)


def _of_hdf5(path: str, inputs: str) -> ArraySource:
    try_in_time("HDF5", __name__, str(existing(path)), inputs=inputs)
    return _opened_hdf5(path, inputs)


def _opened_hdf5(path: str, inputs: str) -> ArraySource:
    import h5py

    file = open_file(path)
    with damage_named(path, "it"):
        refuse_elsewhere(path, file, "give a file that holds its inputs itself", inputs)
        found = _named(file, [name for name in file if isinstance(file[name], h5py.Dataset)], inputs, path)
        check_numbers(path, found)
        check_rows(path, found, 1)
    return _arrays(found, path)


def _named(arrays: Any, names: list[str], name: str, path: str) -> Any:
    if name not in names:
        raise SourceError(name, f"{path} holds no such array", spelling_advice(name, names))
    return arrays[name]


def _arrays(inputs: Any, path: str) -> ArraySource:
    if inputs.ndim < 2:
        rule = f"has the shape {inputs.shape}, and samples lie along the first axis"
        raise SourceError(path, rule, "give inputs of shape (n, ...)")
    targets: Array = np.zeros(len(inputs), np.int64)
    return ArraySource(inputs, targets, path)
