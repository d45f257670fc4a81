"""How jobs with a range of batch sizes train: what the paper on elastic scaling tells of its own (Saxena et al., 2020).

The paper prints ratios and no times. They are derived from what it says of its cluster, and from arithmetic:

* Table II, category 1 on 2 devices, gives t_proc at five batches and t_comm(24M, 2), all in units of t_proc(32).
* The experiment of IV-D gives t_comm(24M, 5): 160 samples on 5 devices are 1.6 times as fast as 32 on 2.
* On 5 devices, of which 2 share a machine, a ring sums 24M weights of 4 bytes over the 10 GbE network; that time is
  t_comm(24M, 5), and makes seconds of the units.
* The other networks need time in proportion to their multiply-adds, and nothing else: by IV-E category 2 is as fast
  with its smallest batch as with its largest.
* 2 devices sum as fast as Table II says, more of them over the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fleet.scheduling.policies.throughput import AllReduceTimes, Scalability

FACTORS: Mapping[int, float] = {8: 0.86, 11: 1.06, 16: 1.3, 22: 1.45, 32: 1.66}
"""Table II: samples on each of 2 devices -> throughput scaling factor of category 1."""
FITS = 32
"""Samples of category 1 that fit on a device."""
FIVE_DEVICES = 1.6 * FACTORS[16]
"""Throughput scaling factor of category 1 with 160 samples on 5 devices (IV-D)."""
BYTES = 4
NETWORK = 10e9 / 8
"""Bytes/s of the network between machines (IV: 10 GbE)."""
RESNET50_WEIGHTS, RESNET50_OPERATIONS = 24e6, 1.30e9
WEIGHTS = tuple(million * 1e6 for million in range(10, 101, 10))
"""Weights whose reduction is measured (III-B)."""
K_MAX = 10


@dataclass(frozen=True)
class BatchProfile:
    """A kind of job: its batches, and how it trains with them.

    Attributes:
        batches: the least and the most samples of a step.
        scaling: its rates.
        seconds: mean time of such a job on one device with the most samples that fit.
        limit: most devices of such a job.
    """

    batches: tuple[int, int]
    scaling: Scalability
    seconds: float
    limit: int = K_MAX


@dataclass(frozen=True)
class _Category:
    """A line of Table I, and what its network computes.

    Attributes:
        operations: multiply-adds of the network for one sample.
        fits: samples on a device. The paper prints none; Table II ends at 32 for category 1. This assumes an eighth of
            the largest batch at least, so that it runs on no more than k_max = 10.
        minutes: length on one device (IV-G).
        limit: most devices; category 4 runs on a fixed number (IV-A).
    """

    weights: float
    operations: float
    batches: tuple[int, int]
    fits: int
    minutes: float
    limit: int = K_MAX


CATEGORIES: Mapping[str, _Category] = {
    "resnet50-cifar100": _Category(RESNET50_WEIGHTS, RESNET50_OPERATIONS, (32, 256), FITS, 16),
    "alexnet-cifar100": _Category(58e6, 0.71e9, (16, 256), 32, 21),
    "vgg11_bn-cifar100": _Category(10e6, 0.153e9, (16, 1024), 128, 41),
    "alexnet-food101": _Category(58e6, 0.71e9, (128, 128), 128, 27, limit=1),
}


def published_profiles(network: float = 1.0, fits: float = 1.0) -> dict[str, BatchProfile]:
    """The four categories of Table I by the name of their network and data.

    Args:
        network: how many times as fast as theirs devices exchange weights.
        fits: how many times as many samples fit on a device as `CATEGORIES` assumes; never more than the largest batch.
    """
    reducing = _all_reduce(network)
    return {
        name: BatchProfile(
            category.batches, _scalability(name, category, reducing, fits), 60 * category.minutes, category.limit
        )
        for name, category in CATEGORIES.items()
    }


def _unit() -> float:
    """Seconds of t_proc(32) of category 1: 5 / (1 + t_comm / unit) = FIVE_DEVICES."""
    return _ring(RESNET50_WEIGHTS, 5, NETWORK) / (5 / FIVE_DEVICES - 1)


def _processing() -> dict[int, float]:
    """t_proc of category 1, s: Table II is (2 b / 32) / (t_proc(b) + t_comm), in units of t_proc(32)."""
    summed = 2 / FACTORS[FITS] - 1
    return {batch: _unit() * (2 * batch / FITS / factor - summed) for batch, factor in FACTORS.items()}


def _scalability(name: str, category: _Category, reducing: AllReduceTimes, fits: float) -> Scalability:
    """t_proc is Table II's up to the 32 samples that it tells of, and goes on as it rises from the least of them."""
    most = min(category.batches[1], round(fits * category.fits)) if category.limit > 1 else category.fits
    measured = _processing()
    least = min(measured)
    each = (measured[FITS] - measured[least]) / (FITS - least)
    if name != "resnet50-cifar100":
        each *= category.operations / RESNET50_OPERATIONS
        return Scalability({1: each, most: each * most}, category.weights, reducing)
    known = {batch: seconds for batch, seconds in measured.items() if batch < most}
    known[most] = float(np.interp(most, list(measured), list(measured.values()))) + each * max(0, most - FITS)
    return Scalability(known, category.weights, reducing)


def _all_reduce(network: float) -> AllReduceTimes:
    """t_comm on machines of 2 devices, for the weights that are measured."""
    inside = _ring(RESNET50_WEIGHTS, 2, 1.0) / (_unit() * (2 / FACTORS[FITS] - 1))  # bytes/s between 2 devices
    speeds = {count: network * (inside if count <= 2 else NETWORK) for count in range(1, K_MAX + 1)}
    rows = {count: tuple(_ring(weights, count, speed) for weights in WEIGHTS) for count, speed in speeds.items()}
    return AllReduceTimes(WEIGHTS, rows)


def _ring(weights: float, count: int, speed: float) -> float:
    """Seconds in which a ring sums weights: each device sends 2 (k - 1) / k of them."""
    return 2 * (count - 1) / count * weights * BYTES / speed
