"""Pictures of many sizes, as PNG files in folders of two classes."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

PARTS = {"train": 230, "held_out": 25}


def write_pictures(root: Path) -> Path:
    """Write them below `root`, and return it."""
    rng = np.random.default_rng(5)
    for part, count in PARTS.items():
        for number in range(count):
            folder = root / part / f"class{number % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            height, width = rng.integers(26, 60, 2)
            cv2.imwrite(str(folder / f"{number:04}.png"), rng.integers(0, 256, (height, width, 3), np.uint8))
    return root
