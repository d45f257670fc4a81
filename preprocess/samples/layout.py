"""The shape and dtype of one sample, of a block of samples in shared memory, and of samples of any number of bytes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch


Array = np.ndarray[Any, np.dtype[Any]]
Indices = npt.NDArray[np.int64]

#: What stands for the index of a substitute where the sample could be made.
ITSELF = -1

_TARGET, _SUBSTITUTE = "target", "substitute"


@dataclass(frozen=True)
class SampleLayout:
    """Shape and dtype of one sample.

    Attributes:
        input_shape: shape of the input; images are (height, width, channels).
        input_dtype: NumPy's name of its dtype; images are "uint8" and are normalised by the trainer.
        target_shape: shape of the target; () for a class.
        target_dtype: NumPy's name of its dtype; "int64" for a class.
        mean_bytes: of ragged samples, each of which is so many bytes as it has: how many that is in the mean, as far as
            is known; the input shape is that of the largest. None: all samples have that shape.
        names_substitutes: in a lane each sample has a word beside its target: the index of the sample that was taken
            in its place, see `substitutes_in`.
    """

    input_shape: tuple[int, ...]
    input_dtype: str
    target_shape: tuple[int, ...] = ()
    target_dtype: str = "int64"
    mean_bytes: int | None = field(default=None, compare=False)
    names_substitutes: bool = field(default=False, compare=False, repr=False)

    @property
    def is_ragged(self) -> bool:
        """Each sample is so many bytes as it has."""
        return self.mean_bytes is not None

    @property
    def input_bytes(self) -> int:
        """Bytes of one input; of ragged samples, of the largest."""
        return math.prod(self.input_shape) * np.dtype(self.input_dtype).itemsize

    @property
    def target_bytes(self) -> int:
        """Bytes of one target, with the word of its substitute where there is one."""
        return self.target_in_lane.itemsize

    @property
    def target_in_lane(self) -> np.dtype[Any]:
        """The dtype of what a lane has of a sample beside its input: its target, or that and its substitute's index."""
        if not self.names_substitutes:
            return np.dtype((self.target_dtype, self.target_shape))
        fields = [(_TARGET, self.target_dtype, self.target_shape), (_SUBSTITUTE, np.int64)]
        return np.dtype(fields, align=True)

    def targets_in(self, memory: Array, samples: int) -> Array:
        """Return bytes, (any,) uint8, as what a lane has of that many samples beside their inputs."""
        own = self.target_in_lane
        found = memory[: samples * own.itemsize]
        return found.view(own) if own.names else found.view(own.base).reshape(samples, *self.target_shape)

    def empty(self, samples: int) -> tuple[Array, Array]:
        """Return uninitialised (inputs, targets) for that many samples; ragged ones are objects, an array each."""
        if self.is_ragged:
            return np.empty(samples, object), np.empty((samples, *self.target_shape), self.target_dtype)
        inputs = np.empty((samples, *self.input_shape), self.input_dtype)
        return inputs, np.empty((samples, *self.target_shape), self.target_dtype)


def plain_targets(targets: Array) -> Array:
    """Return the targets alone, (count, ...), of what a lane has of some samples beside their inputs."""
    return targets[_TARGET] if targets.dtype.names else targets


def take_targets(targets: Array, places: Array, out: Array) -> None:
    """Copy the targets at some places of a lane, (count, ...), of what it has beside the inputs."""
    if targets.dtype.names:
        out[...] = targets[_TARGET][places]  # `take` would copy all of the lane's first
    else:
        np.take(targets, places, axis=0, out=out, mode="wrap")


def substitutes_in(targets: Array) -> Array | None:
    """Return the index of what was taken in each one's place, `ITSELF` for none, (count,) int64.

    Args:
        targets: what a lane has of some samples beside their inputs.

    Returns:
        None where it does not say.
    """
    return targets[_SUBSTITUTE] if targets.dtype.names else None


@dataclass(frozen=True)
class RaggedSize:
    """Sizes of ragged samples, which a map-style data set has as its attribute `ragged`.

    Its inputs are arrays of bytes, (any,) uint8.

    Attributes:
        most: bytes of the largest sample; a larger one is refused.
        mean: bytes of a sample in the mean, as far as is known, at least 1.
    """

    most: int
    mean: int


class SamplePlace:
    """Place of one ragged sample: a row of a slot, or of an array of objects."""

    def __init__(self, rows: Any, row: int) -> None:
        self._rows, self._row = rows, row

    def put(self, sample: Array) -> None:
        """Write a copy of the sample there.

        Raises:
            ValueError: it is no array of bytes, (any,) uint8, or larger than the largest.
        """
        if sample.ndim != 1 or sample.dtype != np.uint8:
            raise ValueError(f"the sample is {sample.shape} of {sample.dtype}, all others are (any,) of uint8")
        self._rows[self._row] = sample.copy() if isinstance(self._rows, np.ndarray) else sample


InputPlace = Array | SamplePlace
"""Where one input is written: its part of a slot, or the place of a ragged one."""


def places_in(inputs: Any) -> Callable[[int], InputPlace]:
    """Return what gives the place of a row among inputs: of a slot, or as `SampleLayout.empty` makes them."""
    if isinstance(inputs, np.ndarray) and inputs.dtype != object:
        return inputs.__getitem__
    return lambda row: SamplePlace(inputs, row)


def tensor_in_place(samples: Array) -> torch.Tensor:
    """Return a tensor on the memory of an array, also where that is read only: it must not be written to then.

    torch cannot express that, and warns of it once.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(samples)
