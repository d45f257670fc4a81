"""Folders of images, one folder a class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array, SampleLayout
from preprocess.sources.encoded_images import (
    IMAGE_EXTENSIONS,
    check_channels,
    decoded_layout,
    has_ending,
    label_numbers,
)

#: Names of folders that hold a part of the data rather than a class.
SPLIT_FOLDERS = ("train", "held_out", "val", "validation", "valid", "test")


class ImageFolderSource:
    """Encoded images i in the order of (class, path); the target is the number of the class.

    Attributes:
        classes: names of the classes, by their numbers.
        channels: channels of the decoded images.
    """

    encoded = True

    def __init__(self, root: Path, files: Sequence[str], labels: Sequence[int], classes: Sequence[str], channels: int):
        self._root, self._files = str(root), files
        self._labels = np.asarray(labels, np.int64)
        self.classes, self.channels = tuple(classes), channels

    @cached_property
    def layout(self) -> SampleLayout:
        """The decoded images'; looking for it reads images until two differ in height and width."""
        contents = (lambda index=index: self._content(index).tobytes() for index in range(len(self)))  # type: ignore[misc]
        return decoded_layout(contents, self.channels, self._root)

    def __len__(self) -> int:
        return len(self._files)

    def read(self, index: int) -> tuple[Array, Any]:
        return self._content(index), self._labels[index]

    def describe(self, index: int) -> str:
        """Return the path of a sample's file."""
        return os.path.join(self._root, self._files[index])

    def _content(self, index: int) -> Array:
        return np.fromfile(self.describe(index), np.uint8)


def open_image_folder(
    path: str, channels: int = 3, extensions: Sequence[str] | None = None, classes: Sequence[str] | None = None
) -> ImageFolderSource:
    """Open a folder that has one folder of images for each class.

    Args:
        path: the folder; a class is the name of a folder in it, and has all images below.
        channels: 3 or 1, of the decoded images.
        extensions: endings of the files that are images; if not given, the usual formats' endings.
        classes: names of the classes in the order of their numbers; if not given, the folders' names, sorted.
            Give the training images' classes for a folder that may lack some.

    Raises:
        SourceError: no such folder, or one without classes or images.
    """
    root = _folder(path)
    endings = _endings(extensions)
    found = _class_folders(root, path, endings)
    numbers = label_numbers(found, classes if classes is not None else found, path)
    files: list[str] = []
    labels: list[int] = []
    for name, number in zip(found, numbers):
        images = _images(root / name, name, endings)
        if not images:
            rule = f"the folder of class {name!r} holds no image ({', '.join(endings)})"
            raise SourceError(path, rule, "remove it or fill it")
        files += images
        labels += [number] * len(images)
    return ImageFolderSource(root, files, labels, classes if classes is not None else found, check_channels(channels))


def images_below(folder: Path, endings: Sequence[str]) -> list[str]:
    """Return the images in a folder at any depth, as sorted paths from it on; hidden files are none."""
    return _images(folder, "", tuple(endings))


def _folder(path: str) -> Path:
    root = Path(path)
    if not root.is_dir():
        rule = "is a file, not a folder" if root.exists() else "there is no such folder"
        raise SourceError(str(path), rule, f"paths are relative to {Path.cwd()}; mend the path")
    return root


def _endings(extensions: Sequence[str] | None) -> tuple[str, ...]:
    if extensions is None:
        return IMAGE_EXTENSIONS
    given = [extensions] if isinstance(extensions, str) else list(extensions)
    if not given or not all(isinstance(ending, str) and ending.strip(".") for ending in given):
        raise SourceError(extensions, "extensions are a list of file endings", "write extensions: [jpg, png]")
    return tuple(ending.lower().lstrip(".") for ending in given)


def _class_folders(root: Path, path: str, endings: tuple[str, ...]) -> list[str]:
    entries = [entry for entry in os.scandir(root) if not entry.name.startswith(".")]
    folders = sorted(entry.name for entry in entries if entry.is_dir())
    if folders and set(folders) <= set(SPLIT_FOLDERS):
        rule = f"its folders ({', '.join(folders)}) are parts of the data, not classes"
        raise SourceError(path, rule, f"give one of them, such as path: {os.path.join(path, folders[-1])}")
    if not folders:
        loose = any(has_ending(entry.name, endings) for entry in entries)
        rule = "holds images, but no folder for each class" if loose else "holds no folders of images"
        raise SourceError(path, rule, "arrange it as CLASS/IMAGE.jpg: one folder a class, named after it")
    return folders


def _images(folder: Path, name: str, endings: tuple[str, ...]) -> list[str]:
    """The images below a class folder, as sorted paths that begin with `name`; hidden files are none."""
    found = []
    for place, _, files in os.walk(folder, followlinks=True):
        prefix = os.path.join(name, os.path.relpath(place, folder)) if place != str(folder) else name
        found += [
            os.path.join(prefix, file) for file in files if not file.startswith(".") and has_ending(file, endings)
        ]
    return sorted(found)
