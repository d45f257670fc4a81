"""Samples of any shapes, each packed into bytes that fill a slot of one size, for tasks that collate themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trainers.tree import decode, encode

_HEADER_BYTES = 128  # how much longer another sample's description of its arrays may be than the largest one's


class SampleTooLarge(ValueError):
    """A sample does not fit its slot."""


def packing_of(task: Any) -> Packing | None:
    """Return how the samples of a task are packed; None where it does not collate them itself.

    ValueError if it does not say how large they may be.
    """
    if not hasattr(task, "collate"):
        return None
    if not hasattr(task, "largest_sample"):
        raise ValueError(
            "the task has collate(samples) and no largest_sample(), and samples travel in slots of one size; add "
            "`def largest_sample(self)`, which gives a sample as large as any, such as zeros"
        )
    return Packing(
        len(encode(task.largest_sample())), "the task's largest_sample()", "let that give a sample as large as any"
    )


class Packing:
    """Packs samples into slots; slot_bytes: of one.

    Args:
        most: bytes of a sample as large as any, encoded.
        what: where that is said.
        mend: what to do about a sample that is larger.
    """

    def __init__(self, most: int, what: str, mend: str) -> None:
        self.slot_bytes = most + _HEADER_BYTES
        self._what, self._mend = what, mend

    def pack(self, sample: Any, index: int) -> np.ndarray:
        """Return a slot's bytes. SampleTooLarge; TypeError names what no slot can hold."""
        content = encode(sample)
        if len(content) > self.slot_bytes:
            raise SampleTooLarge(
                f"sample {index} takes {len(content)} bytes, and {self._what} {self.slot_bytes}; {self._mend}, or cut "
                "longer samples in the data set"
            )
        slot = np.zeros(self.slot_bytes, np.uint8)
        slot[: len(content)] = np.frombuffer(content, np.uint8)
        return slot


def collated(slots: np.ndarray, collate: Callable[[list[Any]], Any]) -> Any:
    """Return the batch that a task makes of packed samples, one a row."""
    return collate([decode(row.tobytes()) for row in slots])
