"""What the sources of encoded images have in common: their layout, and which files are images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from preprocess.samples.errors import SourceError
from preprocess.samples.layout import SampleLayout

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
    from preprocess.samples.decode import image_size  # only those who decode pay for the import

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
