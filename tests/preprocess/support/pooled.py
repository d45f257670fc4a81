"""Data sets whose samples are made by the thread pools of libraries."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import torch


class Resized:
    """Pictures that OpenCV makes with a pool of threads, if it may."""

    def __init__(self) -> None:
        cv2.setNumThreads(2)
        self[0]  # the pool starts with the first large picture

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return cv2.resize(np.full((64, 64, 3), index, np.uint8), (1024, 1024))[:4, :4].copy(), index


class Summed:
    """Numbers that torch adds up with a pool of threads, if it may."""

    def __init__(self) -> None:
        torch.set_num_threads(2)
        self[0]

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.full((4, 4, 3), int(torch.full((2**20,), index).sum()) >> 20, np.uint8), index
