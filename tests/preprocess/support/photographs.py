"""Pictures that look like photographs to a coder: smooth colours, edges and noise."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image


def photograph(height: int = 256, width: int = 256, seed: int = 0) -> np.ndarray:
    """Return (height, width, 3), uint8."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / np.array([[[max(height, 2) - 1]], [[max(width, 2) - 1]]])
    waves = [np.sin(rng.uniform(2, 9) * x + rng.uniform(2, 9) * y + rng.uniform(0, 6)) for _ in range(3)]
    picture = 128 + 90 * np.stack(waves, -1) + rng.normal(0, 6, (height, width, 3))
    picture[(x - 0.5) ** 2 + (y - 0.4) ** 2 < 0.05] *= 0.5
    return np.clip(picture, 0, 255).astype(np.uint8)


def encoded(picture: np.ndarray | Image.Image, form: str, **options: Any) -> bytes:
    """Return the picture as a file of this format, by Pillow."""
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()
