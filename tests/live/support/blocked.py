"""A data set in blocks that notes which process reads which sample; copied beside the spec."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np

SAMPLES, BLOCK, INPUTS = 203, 20, 5


def values() -> tuple[np.ndarray, np.ndarray]:
    """(inputs, targets) of all samples."""
    rng = np.random.default_rng(5)
    return rng.normal(size=(SAMPLES, INPUTS)).astype(np.float32), rng.integers(0, 2, SAMPLES)


class Noted:
    """The samples.

    Args:
        notes: the folder in which each process has a file, with a line for each sample that it reads.
    """

    block_starts = range(0, SAMPLES, BLOCK)

    def __init__(self, notes: str) -> None:
        self._inputs, self._targets = values()
        self._notes = Path(notes)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        with (self._notes / f"{socket.gethostname()}-{os.getpid()}").open("a") as file:
            file.write(f"{index}\n")
        return self._inputs[index], int(self._targets[index])
