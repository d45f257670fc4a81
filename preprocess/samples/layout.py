"""The shape and dtype of one sample, and of a block of samples in shared memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class SampleLayout:
    """What one sample looks like.

    Attributes:
        input_shape: shape of the input; images are (height, width, channels).
        input_dtype: NumPy's name of its dtype; images are "uint8" and are normalised by the trainer.
        target_shape: shape of the target; () for a class.
        target_dtype: NumPy's name of its dtype; "int64" for a class.
        mean_bytes: of ragged samples, each of which is so many bytes as it has: how many that is in the mean, as far as
            is known; the input shape is that of the largest. None: all samples have that shape.
    """

    input_shape: tuple[int, ...]
    input_dtype: str
    target_shape: tuple[int, ...] = ()
    target_dtype: str = "int64"
    mean_bytes: int | None = field(default=None, compare=False)

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
        """Bytes of one target."""
        return math.prod(self.target_shape) * np.dtype(self.target_dtype).itemsize

    def empty(self, samples: int) -> tuple[Array, Array]:
        """Return uninitialised (inputs, targets) for that many samples; ragged ones are objects, an array each."""
        if self.is_ragged:
            return np.empty(samples, object), np.empty((samples, *self.target_shape), self.target_dtype)
        inputs = np.empty((samples, *self.input_shape), self.input_dtype)
        return inputs, np.empty((samples, *self.target_shape), self.target_dtype)
