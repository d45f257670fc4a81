"""How many devices this machine has, for a run that starts its own ranks."""

from __future__ import annotations

import psutil


def local_trainers(device: str) -> int:
    """One trainer for each accelerator; without any, one for each core but the one that makes samples."""
    if device != "cpu":
        import torch

        if torch.accelerator.is_available():
            return int(torch.accelerator.device_count())
    return max(1, (psutil.cpu_count(logical=False) or psutil.cpu_count() or 2) - 1)
