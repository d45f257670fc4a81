"""Map-style data sets of (input, target), as torch and its relatives have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array, SampleLayout
from preprocess.samples.names import load_object
from preprocess.sources.arrays import is_plain_image


class MapStyleSource:
    """A data set with `len` and `[index] -> (input, target)`; input: array, tensor on the CPU, or Pillow image.

    A two-dimensional uint8 input is an image and gets one channel. Targets keep their dtype; a Python int is
    int64 and a Python float float64, as in torch's default_collate.

    Args:
        items: the data set.
        what: how errors name it.
        looks: how many of its first samples are tried until one shows the layout; more than one where some may be
            corrupt.
    """

    def __init__(self, items: Any, what: str, looks: int = 1) -> None:
        _refuse_iterable(items, what)
        self._items, self._length = items, _length(items, what)
        image, target = self._first_pair(what, looks)
        self._add_channel = is_plain_image(image.shape, image.dtype)
        shape = (*image.shape, 1) if self._add_channel else image.shape
        number = np.asarray(target)
        dtype = "int64" if number.dtype == np.bool_ else str(number.dtype)
        self.layout = SampleLayout(shape, str(image.dtype), number.shape, dtype)

    def __len__(self) -> int:
        return self._length

    def read(self, index: int) -> tuple[Array, Any]:
        image, target = self._items[index]
        array = np.asarray(image)
        return (array[..., None] if self._add_channel else array), np.asarray(target)

    def _first_pair(self, what: str, looks: int) -> tuple[Array, Array]:
        errors = []
        for index in range(min(looks, self._length)):
            try:
                return self._pair(index, what)
            except SourceError as error:
                errors.append(error)
        raise errors[0]

    def _pair(self, index: int, what: str) -> tuple[Array, Any]:
        try:
            image, target = self._items[index]
            array, number = np.asarray(image), np.asarray(target)
        except Exception as cause:  # the user's code may raise anything
            rule = f"reading its sample {index} as (input, target) raised {type(cause).__name__}: {cause}"
            raise SourceError(what, rule, "let [index] give a pair of an array or tensor and a target") from cause
        for name, value in (("input", array), ("target", number)):
            if value.dtype.kind not in "iufb":
                rule = f"the {name} of its sample {index} is a {type(image if name == 'input' else target).__name__}"
                raise SourceError(what, rule, "give numbers: an array, a tensor or an image")
        return array, target


def open_map_style(name: str, arguments: dict[str, Any], looks: int = 1) -> MapStyleSource:
    """Call `module:Name` with the arguments and wrap the data set that it gives; looks: see `MapStyleSource`.

    Raises:
        SourceError: the name does not import, the call raises, or the result is no map-style data set.
    """
    maker = load_object(name, SourceError)
    is_data_set = hasattr(maker, "__getitem__") and not isinstance(maker, type)
    try:
        items = maker if is_data_set else maker(**arguments)
    except Exception as cause:  # the user's code may raise anything
        rule = f"calling it with {arguments} raised {type(cause).__name__}: {cause}"
        raise SourceError(name, rule, "mend the arguments or the data set") from cause
    _refuse_iterable(items, name)
    if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        rule = f"it gave a {type(items).__name__}, a map-style data set has len and [index]"
        raise SourceError(name, rule, "define __len__ and __getitem__")
    return MapStyleSource(items, name, looks)


def _refuse_iterable(items: Any, what: str) -> None:
    """Refuse what only gives one sample after the other: no sample of it can be asked for by its number."""
    kinds = {kind.__name__ for kind in type(items).__mro__}
    reads = hasattr(items, "__len__") and hasattr(items, "__getitem__")
    if "IterableDataset" in kinds or (hasattr(items, "__iter__") and not reads):
        rule = f"it gave a {type(items).__name__}, which is iterable-style: its samples come in an order of its own"
        mend = (
            "write them to files once, such as Parquet, tar shards or NumPy, and give those, or define len and [index]"
        )
        raise SourceError(what, rule, mend)


def _length(items: Any, what: str) -> int:
    try:
        length = len(items)
    except Exception as cause:  # the user's code may raise anything
        rule = f"asking for its length raised {type(cause).__name__}: {cause}"
        raise SourceError(what, rule, "let len give the number of its samples") from cause
    if length == 0:
        raise SourceError(what, "a source needs at least one sample", "give one that is not empty")
    return length
