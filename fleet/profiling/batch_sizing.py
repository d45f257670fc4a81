"""What a job needs as its batch grows, from two sizings: what autograd keeps grows with the samples, all else stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fleet.profiling.sizing import Size, size_of
from preprocess import SampleLayout

_SIZED = (8, 16)  # samples; some networks cannot train on one


@dataclass(frozen=True)
class SizeByBatch:
    """A job's needs by the samples of a virtual worker.

    Attributes:
        size: with `batch` samples.
        sample_bytes: what each sample more takes; None where the model cannot be run on the meta device.
    """

    size: Size
    batch: int
    sample_bytes: float | None

    def at(self, batch: int) -> Size:
        """The needs with so many samples."""
        if self.sample_bytes is None or self.size.activation_bytes is None:
            return self.size
        kept = self.size.activation_bytes + self.sample_bytes * (batch - self.batch)
        return replace(self.size, activation_bytes=max(0, round(kept)))


def size_by_batch(task_of: Callable[[int], Any], layout: SampleLayout) -> SizeByBatch:
    """Size a job whose samples look like `layout`.

    Args:
        task_of: its task with so many samples of a virtual worker.
    """
    few, more = (size_of(task_of(batch), layout) for batch in _SIZED)
    least, most = few.activation_bytes, more.activation_bytes
    each = None if least is None or most is None else (most - least) / (_SIZED[1] - _SIZED[0])
    return SizeByBatch(few, _SIZED[0], each)
