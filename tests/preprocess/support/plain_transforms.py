"""The transforms as their definitions read, in floating point and without any library for images."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

LUMA = np.array([0.299, 0.587, 0.114])


def bilinear(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Mix the two nearest rows and columns; pixels are squares, and those at the edge go on outside."""
    for axis, length in ((0, height), (1, width)):
        before = image.shape[axis]
        place = np.clip((np.arange(length) + 0.5) * before / length - 0.5, 0, before - 1)
        first = np.floor(place).astype(int)
        second = np.minimum(first + 1, before - 1)
        share = (place - first).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        image = np.take(image, first, axis) * (1 - share) + np.take(image, second, axis) * share
    return image


def bicubic(image: np.ndarray, height: int, width: int, a: float = -0.75) -> np.ndarray:
    """Keys (1981) with OpenCV's a."""

    def weight(distance: np.ndarray) -> np.ndarray:
        d = np.abs(distance)
        near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * (d**3 - 5 * d**2 + 8 * d - 4)
        return np.where(d <= 1, near, np.where(d < 2, far, 0))

    image = image.astype(float)
    for axis, length in ((0, height), (1, width)):
        before = image.shape[axis]
        place = (np.arange(length) + 0.5) * before / length - 0.5
        first = np.floor(place).astype(int)
        total = 0.0
        for tap in range(-1, 3):
            share = weight(place - (first + tap)).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
            total = total + np.take(image, np.clip(first + tap, 0, before - 1), axis) * share
        image = total  # type: ignore[assignment]
    return np.clip(image, 0, 255)


def nearest(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """The pixel that a new pixel's upper left corner falls into."""
    rows, columns = (
        np.minimum(np.floor(np.arange(new) * (1 / (new / old))).astype(int), old - 1)
        for new, old in ((height, image.shape[0]), (width, image.shape[1]))
    )
    return image[rows][:, columns]


def area(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """The mean of what a new pixel covers; for shrinking alone."""
    image = image.astype(float)
    for axis, length in ((0, height), (1, width)):
        before = image.shape[axis]
        edges = np.arange(length + 1) * before / length
        low, high = edges[:-1, None], edges[1:, None]
        cover = np.clip(np.minimum(high, np.arange(1, before + 1)) - np.maximum(low, np.arange(before)), 0, None)
        image = np.moveaxis(np.tensordot(cover / (high - low), image, (1, axis)), 0, axis)
    return image


SCALINGS: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {
    "linear": bilinear,
    "linear_exact": bilinear,
    "cubic": bicubic,
    "area": area,
    "nearest": nearest,
}


def drawn_part(
    rows: int, columns: int, scale: tuple[float, float], ratio: tuple[float, float], rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """torchvision's RandomResizedCrop.get_params, with four of NumPy's draws a try: (top, left, height, width)."""
    logs = math.log(ratio[0]), math.log(ratio[1])
    for _ in range(10):
        draws = [rng.uniform() for _ in range(4)]
        target = rows * columns * (scale[0] + (scale[1] - scale[0]) * draws[0])
        aspect = math.exp(logs[0] + (logs[1] - logs[0]) * draws[1])
        width, height = int(round(math.sqrt(target * aspect))), int(round(math.sqrt(target / aspect)))
        if 0 < width <= columns and 0 < height <= rows:
            return int(draws[2] * (rows - height + 1)), int(draws[3] * (columns - width + 1)), height, width
    proportion = columns / rows
    width, height = columns, rows
    if proportion < min(ratio):
        height = max(int(round(width / min(ratio))), 1)
    elif proportion > max(ratio):
        width = max(int(round(height * max(ratio))), 1)
    return (rows - height) // 2, (columns - width) // 2, height, width


def grey(image: np.ndarray) -> np.ndarray:
    return (image @ LUMA)[..., None]


def brightened(image: np.ndarray, factor: float) -> np.ndarray:
    return np.clip(image * factor, 0, 255)


def contrasted(image: np.ndarray, factor: float) -> np.ndarray:
    mean = (image if image.shape[2] == 1 else grey(image)).mean()
    return np.clip(factor * image + (1 - factor) * mean, 0, 255)


def saturated(image: np.ndarray, factor: float) -> np.ndarray:
    return image if image.shape[2] == 1 else np.clip(factor * image + (1 - factor) * grey(image), 0, 255)


def turned(image: np.ndarray, part: float) -> np.ndarray:
    """Turn the hue by a part of the circle, through HSV (Smith, 1978)."""
    if image.shape[2] == 1:
        return image
    value, least = image.max(2), image.min(2)
    chroma = np.where(value > least, value - least, 1)
    red, green, blue = np.moveaxis(image, 2, 0)
    sector = np.where(
        value == red,
        (green - blue) / chroma,
        np.where(value == green, 2 + (blue - red) / chroma, 4 + (red - green) / chroma),
    )
    sector = np.where(value > least, sector, 0)
    sector = (sector + 6 * part) % 6
    channels = []
    for offset in (5, 3, 1):
        k = (offset + sector) % 6
        channels.append(value - (value - least) * np.clip(np.minimum(k, 4 - k), 0, 1))
    return np.stack(channels, 2)


JITTERS = (brightened, contrasted, saturated, turned)
