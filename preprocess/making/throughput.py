"""How fast one process makes samples, for those who choose the number of preprocessors."""

from __future__ import annotations

import time

from preprocess.making.dataset import Dataset
from preprocess.samples.itinerary import Itinerary


def throughput(dataset: Dataset, seconds: float, seed: int = 0, samples: int = 64) -> float:
    """Measure how many training samples a second this process makes, into memory of its own.

    Args:
        dataset: the data set.
        seconds: how long to measure; at least one sample is made.
        seed: seed of the order and the transforms.
        samples: as many samples lie in the memory that is written.
    """
    inputs, targets = dataset.layout.empty(samples)
    itinerary = Itinerary(dataset.length)
    for _ in dataset.fill(itinerary, seed, 0, inputs[:1], targets[:1]):  # what only the first sample costs
        pass
    made = 0
    start = time.monotonic()
    while True:
        for _ in dataset.fill(itinerary, seed, made, inputs, targets):
            made += 1
            elapsed = time.monotonic() - start
            if elapsed >= seconds:
                return made / max(elapsed, 1e-9)
