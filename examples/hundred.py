"""Write the spec of FLEET's ensemble (MLSys'20, Appendix B.1): 50 ResNets and 50 DenseNets with random block counts.

    python examples/hundred.py > examples/hundred.yaml
    fleet run examples/hundred.yaml --rehearse --cluster 4x4 --time-scale 0.0005

There is no ImageNet here: its shape is pretended by a tiny set, and rates lie in the paper's range, 21 to 176
images/s on one
device (Figure 7), falling with the networks' depth. It is meant for rehearsals and for `fleet plan`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import yaml

from trainers.zoo import fleet_ensemble

SLOWEST, FASTEST, EFFICIENCY = 21.0, 176.0, 0.97
VIRTUAL_WORKERS = 16
MOST_EPOCHS = (20, 60)


def spec(seed: int = 0) -> dict[str, Any]:
    """The ensemble as plain values, rates and epochs drawn with `seed`."""
    networks = fleet_ensemble(seed)
    depths = np.array([sum(network.arguments["blocks"]) for network in networks], dtype=float)
    ranks = depths.argsort(kind="stable").argsort(kind="stable") / (len(networks) - 1)
    single = FASTEST * (SLOWEST / FASTEST) ** ranks
    epochs = np.random.default_rng([seed, 100]).integers(*MOST_EPOCHS, size=len(networks), endpoint=True)
    jobs, rates = [], {}
    for network, rate, count in zip(networks, single, epochs):
        model = {"name": network.model, "arguments": dict(network.arguments)}
        jobs.append({"name": network.name, "model": model, "stop": {"epochs": int(count)}})
        rates[network.name] = {
            m: round(float(rate * m * EFFICIENCY ** (m - 1)), 2) for m in range(1, VIRTUAL_WORKERS + 1)
        }
    return {
        "name": "hundred",
        "data": {"images": {"train": {"source": "hundred:Pretended"}}},
        "defaults": {
            "data": "images",
            "optimizer": {"name": "SGD", "arguments": {"lr": 0.1, "momentum": 0.9}},
            "loss": "cross_entropy",
            "virtual_workers": VIRTUAL_WORKERS,
            "batch_size": 8,
        },
        "jobs": jobs,
        "rehearse": {"rates": rates},
    }


class Pretended:
    """As many samples as Caltech256 has, 30,606; each is one black image of 3 x 64 x 64."""

    def __len__(self) -> int:
        return 30_606

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.zeros((3, 64, 64), dtype=np.float32), index % 256


if __name__ == "__main__":
    yaml.safe_dump(spec(), sys.stdout, sort_keys=False)
