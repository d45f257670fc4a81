"""Networks that compute for some seconds, one that turns slow while it trains, and unlike ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from benchmarks.noise_task import CLASSES, NoiseTask
from benchmarks.timed_networks import BATCH, NETWORKS

SIDE, PICTURE_SIDE = 16, 32


class Steady(NoiseTask):
    """Convolutions on images of noise; the job's own `seed` and `batch_size` count.

    Args:
        samples: of an epoch.
        flag: a file; while it is there, each step sleeps for `seconds`. "": it never does.
    """

    batch_size: ClassVar[int] = 16

    def __init__(self, samples: int = 640, flag: str = "", seconds: float = 0.0) -> None:
        self.samples, self.side = samples, SIDE
        self._flag, self._seconds = Path(flag) if flag else None, seconds

    def model(self) -> nn.Module:
        """Return the network."""
        return nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(24 * (SIDE // 4) ** 2, CLASSES),
        )  # fmt: skip

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the cross entropy, after a sleep if this network is slow now."""
        if self._flag is not None and self._flag.exists():
            time.sleep(self._seconds)
        return functional.cross_entropy(model(batch[0]), batch[1])


class Pictured(NoiseTask):
    """One of the networks on pictures that `timed_networks` names.

    Args:
        network: its name.
        samples: of an epoch.
    """

    batch_size: ClassVar[int] = BATCH

    def __init__(self, network: str, samples: int) -> None:
        self.samples, self.side = samples, PICTURE_SIDE
        self.model = NETWORKS[network].model
