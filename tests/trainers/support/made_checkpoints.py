"""A checkpoint of a small network, made up."""

from __future__ import annotations

import torch

from trainers import Checkpoint
from trainers.state.history import History


def checkpoint(epoch: int = 1, step: int = 0) -> Checkpoint:
    generator = torch.Generator().manual_seed(epoch)
    weights = {"0.weight": torch.randn(200, 30, generator=generator), "0.bias": torch.randn(30, generator=generator)}
    optimizer = {
        "state": {0: {"momentum_buffer": torch.ones(200, 30)}},
        "param_groups": [{"lr": 0.1, "betas": (0.9, 1)}],
    }
    return Checkpoint(
        job="net",
        seed=3,
        virtual_workers=1,
        batch_size=4,
        epoch=epoch,
        step=step,
        steps=10 * epoch + step,
        parameters=weights,
        workers=[{"rank": 0, "buffers": {"mean": torch.zeros(3)}, "loss_sum": 0.1 + 0.2}],
        optimizer=optimizer,
        schedule=None,
        layout={"buckets": [[1, 0]], "used": [True, True]},
        history=History([{"loss": 0.3}]),
        pins={"torch": "2.0"},
    )
