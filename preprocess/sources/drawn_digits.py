"""Pictures of digits that are drawn when they are read: a data set for first steps, without a file or a download."""

from __future__ import annotations

import numpy as np

from preprocess.samples.layout import Array

SIDE = 28
DOT = 3  # pixels: how high and wide a dot of the font is
AWAY = 2  # pixels: how far a digit may be from the middle, each way
HELD_OUT_SHARE = 4  # one held-out picture for so many that train

# Seven rows of five dots for each digit, from 0 to 9.
_FONT = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)


class DrawnDigits:
    """Noisy pictures of digits of a dotted font, shape (28, 28), uint8, with the digit, int64.

    Each picture is a function of its number and of `train` alone: place, brightness, lost dots and noise are drawn from
    them.

    Args:
        train: the pictures to train on, else the held-out ones, of which there are a quarter as many.
        count: how many pictures there are to train on.

    Raises:
        ValueError: `count` is less than 4.
    """

    def __init__(self, train: bool = True, count: int = 4000) -> None:
        if count < HELD_OUT_SHARE:
            raise ValueError(f"count {count}: at least {HELD_OUT_SHARE} pictures, one of them held out for every 4")
        self.count = count if train else count // HELD_OUT_SHARE
        self.part = 0 if train else 1

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Array, int]:
        if not 0 <= index < self.count:
            raise IndexError(f"picture {index}: there are {self.count}")
        rng = np.random.default_rng([self.part, index])
        digit = int(rng.integers(len(_FONT)))
        return _picture(digit, rng), digit


def _picture(digit: int, rng: np.random.Generator) -> Array:
    """The digit somewhere on a noisy ground; (28, 28), uint8."""
    dots = np.array([[int(dot) for dot in row] for row in _FONT[digit].split()])
    dots[rng.random(dots.shape) < 0.1] = 0
    drawn = np.kron(dots, np.ones((DOT, DOT)))
    top, left = ((SIDE - length) // 2 + int(rng.integers(-AWAY, AWAY + 1)) for length in drawn.shape)
    picture = rng.normal(40, 40, (SIDE, SIDE))
    picture[top : top + drawn.shape[0], left : left + drawn.shape[1]] += rng.uniform(90, 200) * drawn
    return picture.clip(0, 255).astype(np.uint8)
