"""Encoded images: their layout, which files are images, and folders of them, one folder a class."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from preprocess.files.memory import BLOCK_BYTES, SMALL_BYTES, check_claim
from preprocess.files.reading import open_descriptor
from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array, SampleLayout
from preprocess.sources.checked_files import existing

#: Endings of the files that are taken for images, in lower case, without the dot.
IMAGE_EXTENSIONS = ("jpg", "jpeg", "png", "bmp", "webp", "gif", "tif", "tiff", "ppm", "pgm")


def check_channels(channels: int) -> int:
    """Return the number of channels that images are decoded to.

    Raises:
        SourceError: it is neither 1 nor 3.
    """
    if channels not in (1, 3) or isinstance(channels, bool):
        raise SourceError(channels, "images are decoded to 3 channels or to 1", "write channels: 3 or channels: 1")
    return channels


def has_ending(name: str, endings: Sequence[str]) -> bool:
    """Say whether a file's name ends in a dot and one of the endings, in upper or lower case."""
    _, dot, ending = name.rpartition(".")
    return bool(dot) and ending.lower() in endings


def decoded_layout(contents: Iterable[Callable[[], bytes]], channels: int, what: str) -> SampleLayout:
    """Return the layout of the decoded images: a height or width that differs between them is -1.

    Looks at one after the other until both have been seen to differ. One that cannot be read says so when it is made
    into a sample, not here.

    Args:
        contents: for each image, a function that reads the bytes of its file.
        channels: 1 or 3.
        what: name of the source.

    Raises:
        SourceError: not a single one can be read.
    """
    from preprocess.transforms.decode import image_size  # only those who decode pay for the import

    height = width = 0
    for content in contents:
        try:
            found = image_size(content())
        except (OSError, ValueError):
            continue
        height = found[0] if height in (0, found[0]) else -1
        width = found[1] if width in (0, found[1]) else -1
        if height == width == -1:
            break
    if height == 0:
        raise SourceError(what, "none of its images can be read", "check the files; the endings may be wrong")
    return SampleLayout((height, width, channels), "uint8")


def label_numbers(names: Sequence[str], classes: Sequence[str], what: str) -> list[int]:
    """Return the place of each name among the classes.

    Raises:
        SourceError: a name is not among them.
    """
    numbers = {name: number for number, name in enumerate(classes)}
    for name in names:
        if name not in numbers:
            few = ", ".join(classes[:10]) + (" ..." if len(classes) > 10 else "")
            raise SourceError(name, f"{what} has this class, and classes has not: {few}", "add it to classes")
    return [numbers[name] for name in names]


#: Names of folders that hold a part of the data rather than a class.
SPLIT_FOLDERS = ("train", "held_out", "val", "validation", "valid", "test")

_MOST_LINKS = 16  # to one folder: in a circle they would have no end


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
        path = self.describe(index)
        descriptor = open_descriptor(path)
        try:
            found = os.fstat(descriptor)
            size = found.st_size
            if size > SMALL_BYTES:
                check_claim(path, size, stored=BLOCK_BYTES * found.st_blocks)
            content = os.read(descriptor, size)
            while len(content) < size and (more := os.read(descriptor, size - len(content))):
                content += more
        finally:
            os.close(descriptor)
        return np.frombuffer(content, np.uint8)


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
    """The images below a class folder, as sorted paths that begin with `name`; hidden files are none.

    Raises:
        SourceError: one is no regular file, or links lead round in a circle.
    """
    found, waiting, seen = [], [(str(folder), name)], Counter[tuple[int, int]]()
    while waiting:
        place, prefix = waiting.pop()
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                path = os.path.join(prefix, entry.name)
                if _is_folder(entry):
                    if entry.is_symlink():
                        _check_circle(entry, seen)
                    waiting.append((entry.path, path))
                elif not entry.name.startswith(".") and has_ending(entry.name, endings):
                    if not entry.is_file(follow_symlinks=False) and os.path.exists(entry.path):
                        existing(entry.path)
                    found.append(path)
    return sorted(found)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _check_circle(link: os.DirEntry[str], seen: Counter[tuple[int, int]]) -> None:
    status = link.stat()
    seen[status.st_dev, status.st_ino] += 1
    if seen[status.st_dev, status.st_ino] > _MOST_LINKS:
        raise SourceError(link.path, f"links lead to its folder more than {_MOST_LINKS} times", "remove this link")
