"""A data set that counts how often each sample is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COUNTED = """
import os
import numpy as np

class Counted:
    def __init__(self, record, broken=(), work=0):
        self.record, self.broken, self.work = record, broken, work

    def __len__(self):
        return 103

    def __getitem__(self, index):
        if index in self.broken:
            raise OSError("bad sector")
        descriptor = os.open(self.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, bytes([index]))
        os.close(descriptor)
        sum(range(self.work))
        return np.full((5, 4), index, np.uint8), index
"""


def write_counted(folder: Path) -> None:
    """Write the module `counted`."""
    (folder / "counted.py").write_text(COUNTED)


def counted(folder: Path, **arguments: Any) -> dict[str, Any]:
    """A data set that notes every sample that is read."""
    arguments = {"record": str(folder / "record")} | arguments
    return {"name": "counted", "train": {"source": "counted:Counted", "arguments": arguments}}
