"""Samples of any shapes, each packed into as many bytes as it needs, for tasks that collate themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from preprocess.samples.ragged import RaggedSize
from trainers.state.tree import decode, encode

_HEADER_BYTES = 128  # how much longer another sample's description of its arrays may be than the largest one's


class SampleTooLarge(ValueError):
    """A sample is larger than was said."""


def packing_of(task: Any) -> SamplePacker | None:
    """Return how the samples of a task are packed; None where it does not collate them itself.

    ValueError if it does not say how large they may be.
    """
    if not hasattr(task, "collate"):
        return None
    if not hasattr(task, "largest_sample"):
        raise ValueError(
            "the task has collate(samples) and no largest_sample(), and the ring must have room for any sample; add "
            "`def largest_sample(self)`, which gives a sample as large as any, such as zeros"
        )
    return SamplePacker(
        len(encode(task.largest_sample())), "the task's largest_sample()", "let that give a sample as large as any"
    )


class SamplePacker:
    """Packs samples; most_bytes: of one.

    Args:
        most: bytes of a sample as large as any, encoded.
        what: where that is said.
        mend: what to do about a sample that is larger.
    """

    def __init__(self, most: int, what: str, mend: str) -> None:
        self.most_bytes = most + _HEADER_BYTES
        self._what, self._mend = what, mend

    def pack(self, sample: Any, index: int) -> np.ndarray:
        """Return the sample's bytes, (any,) uint8. SampleTooLarge; TypeError names what cannot be packed."""
        content = encode(sample)
        if len(content) > self.most_bytes:
            raise SampleTooLarge(
                f"sample {index} takes {len(content)} bytes, and {self._what} {self.most_bytes}; {self._mend}, or cut "
                "longer samples in the data set"
            )
        return np.frombuffer(content, np.uint8)

    def ragged(self, mean: float) -> RaggedSize:
        """What the ring must know of the samples, which take so many bytes in the mean."""
        return RaggedSize(self.most_bytes, max(math.ceil(min(mean, self.most_bytes)), 1))


def collated(samples: np.ndarray, collate: Callable[[list[Any]], Any]) -> Any:
    """Return the batch that a task makes of packed samples, an array of bytes each."""
    return collate([decode(sample.tobytes()) for sample in samples])
