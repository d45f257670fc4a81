"""Token ids that nobody wrote: a file of them, the data set that cuts it, and the same for torch's DataLoader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from preprocess import DatasetSpec, SourceSpec

__all__ = ["CONTEXT", "Text", "text", "write_ids"]

CONTEXT = 1024
_VOCABULARY = 50257


def write_ids(folder: Path, samples: int) -> Path:
    """Write a file of uint16 ids for so many samples, and return its path."""
    path = folder / "ids.npy"
    np.save(path, np.random.default_rng(0).integers(0, _VOCABULARY, samples * CONTEXT + 1).astype(np.uint16))
    return path


def text(path: Path) -> DatasetSpec:
    """The data set of the source `tokens`."""
    return DatasetSpec("text", SourceSpec("tokens", {"path": str(path), "context": CONTEXT}))


class Text:
    """The map-style data set that a script has for such a file: a memory map, cut and made int64."""

    def __init__(self, path: Path) -> None:
        self._ids = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return (len(self._ids) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        import torch

        start = index * CONTEXT
        ids = torch.from_numpy(self._ids[start : start + CONTEXT + 1].astype(np.int64))
        return ids[:-1], ids[1:]
