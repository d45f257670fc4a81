"""Small data that needs no files: specs name its class."""

import numpy as np


class Points:
    """So many random points, of three classes in turn."""

    def __init__(self, count: int) -> None:
        self.points = np.random.default_rng(0).standard_normal((count, 6)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.points[index], index % 3
