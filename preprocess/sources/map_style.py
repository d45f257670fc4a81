"""Map-style data sets of (input, target), as torch and its relatives have them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from preprocess.samples.errors import NotArrays, SourceError, load_object
from preprocess.samples.layout import Array, Indices, RaggedSize, SampleLayout
from preprocess.samples.order import global_generators_seeded
from preprocess.sources.arrays import is_plain_image


class MapStyleSource:
    """A data set with `len` and `[index] -> (input, target)`; input: array, tensor on the CPU, or Pillow image.

    A two-dimensional uint8 input is an image and gets one channel. Targets keep their dtype; a Python int is
    int64 and a Python float float64, as in torch's default_collate. Inputs are ragged, bytes of any number, where the
    data set has a `RaggedSize` as its attribute `ragged`.

    Args:
        items: the data set.
        what: how errors name it.
        looks: how many of its first samples are tried until one shows the layout; more than one where some may be
            corrupt.

    Attributes:
        items: the data set.
        copies_many: whether `copy` can be called: not of ragged inputs.
    """

    def __init__(self, items: Any, what: str, looks: int = 1) -> None:
        check_map_style(items, what)
        self.items, self._length = items, _length(items, what)
        image, target = self._first_pair(what, looks)
        self._add_channel = is_plain_image(image.shape, image.dtype)
        shape = (*image.shape, 1) if self._add_channel else image.shape
        number = np.asarray(target)
        dtype = "int64" if number.dtype == np.bool_ else str(number.dtype)
        size = getattr(items, "ragged", None)
        self._ragged = size if isinstance(size, RaggedSize) else None
        self.copies_many = self._ragged is None and bool(image.ndim)
        if self._ragged is None:
            self.layout = SampleLayout(shape, str(image.dtype), number.shape, dtype)
        else:
            self.layout = SampleLayout((self._ragged.most,), "uint8", number.shape, dtype, self._ragged.mean)

    def __len__(self) -> int:
        return self._length

    def read(self, index: int) -> tuple[Array, Any]:
        image, target = self.items[index]
        array = np.asarray(image)
        if self._ragged is not None and array.nbytes > self._ragged.most:
            raise ValueError(f"the sample has {array.nbytes} bytes, the largest {self._ragged.most}")
        return (array[..., None] if self._add_channel else array), np.asarray(target)

    def copy(self, indices: Indices, inputs: Array, targets: Array) -> None:
        """Write many samples into inputs and targets of the layout, (count, ...) each, as `read` gives them.

        Raises:
            ValueError, TypeError: one is not like the others, or its target does not fit.
        """
        items = self.items
        pairs = [items[index] for index in indices.tolist()]
        images = [np.asarray(image) for image, _ in pairs]
        shape = inputs.shape[1:-1] if self._add_channel else inputs.shape[1:]
        if any(image.shape != shape for image in images):
            raise ValueError("a sample has another shape than the others")
        rows: Array = inputs.reshape(-1, *shape[1:])
        if not np.shares_memory(rows, inputs):
            raise ValueError("the rows do not lie side by side")
        np.concatenate(images, out=rows, casting="no")
        found = [target for _, target in pairs]
        plain = all(isinstance(target, (int, float, np.generic)) for target in found)
        values = np.array(found) if plain else np.array([np.asarray(target) for target in found])
        if values.shape != targets.shape or not np.can_cast(values.dtype, targets.dtype, "same_kind"):
            raise ValueError("a target has another shape or dtype than the others")
        targets[...] = values

    def _first_pair(self, what: str, looks: int) -> tuple[Array, Array]:
        errors = []
        for index in range(min(looks, self._length)):
            try:
                return self._pair(index, what)
            except SourceError as error:
                errors.append(error)
        raise errors[0]

    def _pair(self, index: int, what: str) -> tuple[Array, Any]:
        mend = "let [index] give a pair of an array or tensor and a target"
        try:
            sample = self.items[index]
        except Exception as cause:  # the user's code may raise anything
            rule = f"reading its sample {index} raised {type(cause).__name__}: {cause}"
            raise SourceError(what, rule, mend) from cause
        if (form := _no_pair(sample)) is not None:
            raise SourceError(what, f"its sample {index} is {form}, and no (input, target)", mend)
        try:
            image, target = sample
            array, number = np.asarray(image), np.asarray(target)
        except Exception as cause:
            rule = f"reading its sample {index} as (input, target) raised {type(cause).__name__}: {cause}"
            raise SourceError(what, rule, mend) from cause
        for name, value in (("input", array), ("target", number)):
            if value.dtype.kind not in "iufb":
                rule = f"the {name} of its sample {index} is a {type(image if name == 'input' else target).__name__}"
                raise NotArrays(what, rule, "give numbers: an array, a tensor or an image")
        return array, target


def _no_pair(sample: Any) -> str | None:
    """Describe a sample that is unlike (input, target), whatever unpacks into two; None: a pair, or nobody knows."""
    if isinstance(sample, Mapping):
        return f"a {type(sample).__name__} of {', '.join(map(str, sample))}"
    if isinstance(sample, (tuple, list)):
        return None if len(sample) == 2 else f"a {type(sample).__name__} of {len(sample)}"
    shape = getattr(sample, "shape", None)
    if shape is not None:
        return f"a {type(sample).__name__} of shape {tuple(shape)}"
    return f"a {type(sample).__name__}" if isinstance(sample, (str, bytes, int, float)) else None


def open_items(name: str, arguments: Mapping[str, Any], seed: int = 0) -> Any:
    """Return the map-style data set that `module:Name` gives, see `constructed`.

    Raises:
        SourceError: as `constructed`, or the result is no map-style data set.
    """
    items = constructed(name, arguments, seed)
    check_map_style(items, name)
    return items


def constructed(name: str, arguments: Mapping[str, Any], seed: int = 0) -> Any:
    """Return the data set or source that `module:Name` is, or gives when it is called with the arguments.

    The call draws from the global generators as a script does after `torch.manual_seed(seed)`; they are then put back.

    Raises:
        SourceError: the name does not import, or the call raises.
    """
    maker = load_object(name, SourceError)
    is_data_set = not isinstance(maker, type) and (hasattr(maker, "__getitem__") or hasattr(maker, "read"))
    try:
        with global_generators_seeded(seed):
            return maker if is_data_set else maker(**arguments)
    except SourceError:
        raise
    except Exception as cause:  # the user's code may raise anything
        rule = f"calling it with {dict(arguments)} raised {type(cause).__name__}: {cause}"
        mend = "mend the arguments or the data set"
        if isinstance(cause, FileNotFoundError) and not os.path.isabs(str(cause.filename or "/")):
            mend += f"; relative paths begin in {os.getcwd()}"
        raise SourceError(name, rule, mend) from cause


def check_map_style(items: Any, what: str) -> None:
    """Refuse what cannot be read by index.

    Raises:
        SourceError: it is an iterable-style data set, or no data set.
    """
    kind = type(items).__name__
    if _is_iterable_style(items):
        rule = f"it gives a {kind}, an iterable-style data set, and samples are read by index, in an order of their own"
        mend = (
            "give a map-style data set, with __len__ and __getitem__ (Hugging Face's: without streaming=True), or "
            "write its samples to files once, such as Parquet, tar shards or NumPy"
        )
        raise SourceError(what, rule, mend)
    if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        rule = f"it gave a {kind}, a map-style data set has len and [index]"
        raise SourceError(what, rule, "define __len__ and __getitem__")


def _is_iterable_style(items: Any) -> bool:
    """Say whether samples only come one after the other: torch's IterableDataset, Hugging Face's, a generator."""
    if any(kind.__name__ == "IterableDataset" for kind in type(items).__mro__):
        return True
    return hasattr(items, "__iter__") and not hasattr(items, "__getitem__")


def _length(items: Any, what: str) -> int:
    try:
        length = len(items)
    except Exception as cause:  # the user's code may raise anything
        rule = f"asking for its length raised {type(cause).__name__}: {cause}"
        raise SourceError(what, rule, "let len give the number of its samples") from cause
    if length == 0:
        raise SourceError(what, "a source needs at least one sample", "give one that is not empty")
    return length


SIDE = 28
DOT = 3  # pixels: how high and wide a dot of the font is
AWAY = 2  # pixels: how far a digit may be from the middle, each way
HELD_OUT_SHARE = 4  # one held-out picture for so many that train

# Seven rows of five dots for each digit, from 0 to 9.
_FONT = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)


class DrawnDigits:
    """Noisy pictures of digits of a dotted font, shape (28, 28), uint8, with the digit, int64.

    Each picture is a function of its number and of `train` alone: place, brightness, lost dots and noise are drawn from
    them.

    Args:
        train: the pictures to train on, else the held-out ones, of which there are a quarter as many.
        count: how many pictures there are to train on.

    Raises:
        ValueError: `count` is less than 4.
    """

    def __init__(self, train: bool = True, count: int = 4000) -> None:
        if count < HELD_OUT_SHARE:
            raise ValueError(f"count {count}: at least {HELD_OUT_SHARE} pictures, one of them held out for every 4")
        self.count = count if train else count // HELD_OUT_SHARE
        self.part = 0 if train else 1

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Array, int]:
        if not 0 <= index < self.count:
            raise IndexError(f"picture {index}: there are {self.count}")
        rng = np.random.default_rng([self.part, index])
        digit = int(rng.integers(len(_FONT)))
        return _picture(digit, rng), digit


def _picture(digit: int, rng: np.random.Generator) -> Array:
    """The digit somewhere on a noisy ground; (28, 28), uint8."""
    dots = np.array([[int(dot) for dot in row] for row in _FONT[digit].split()])
    dots[rng.random(dots.shape) < 0.1] = 0
    drawn = np.kron(dots, np.ones((DOT, DOT)))
    top, left = ((SIDE - length) // 2 + int(rng.integers(-AWAY, AWAY + 1)) for length in drawn.shape)
    picture = rng.normal(40, 40, (SIDE, SIDE))
    picture[top : top + drawn.shape[0], left : left + drawn.shape[1]] += rng.uniform(90, 200) * drawn
    return picture.clip(0, 255).astype(np.uint8)
