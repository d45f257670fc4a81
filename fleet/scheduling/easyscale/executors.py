"""Several executors of a job on an accelerator: how fast they are together (EasyScale, SC'23, 3.4.1, planning MUs)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.rates import RateCurve

Layout = tuple[int, ...]
"""How many trainers of a group are on each of its accelerators, the most first."""


def layout_of(devices: Iterable[int], cluster: Cluster) -> Layout:
    """Where the trainers of a group are; () where each has an accelerator for itself in any case."""
    if not cluster.sharing:
        return ()
    shared = {device: number for number, devices in enumerate(cluster.sharing) for device in devices}
    return tuple(sorted(Counter(shared[device] for device in devices).values(), reverse=True))


def each_of(rates: Sequence[float], workers: int) -> tuple[float, ...]:
    """Samples/s of one of 1, 2, ... executors on an accelerator, C_i I_i, of a job with so many virtual workers.

    Args:
        rates: the speed of all of them together; in a step the slowest turns ceil(workers / executors) of the workers.
    """
    return tuple(rate * -(-workers // count) / workers for count, rate in enumerate(rates, 1))


def kept_speed(curve: RateCurve, workers: int, devices: int) -> float:
    """The part of their speed that so many devices keep when they sum gradients, by the rates measured on them."""
    return min(1.0, curve(devices) / (workers / -(-workers // devices) * curve(1)))


def pace_in(layout: Layout, rates: Sequence[float], curve: RateCurve, workers: int) -> float:
    """Samples/s of a group, whose workers are spread evenly: N / max (A / C I) (Eq. 1e), less what sums take.

    Args:
        rates: 1, 2, ... executors on an accelerator have them together.
        curve: by number of devices.
    """
    speeds = each_of(rates, workers)
    slowest = min(speeds[min(count, len(speeds)) - 1] for count in layout)
    return workers / -(-workers // sum(layout)) * slowest * kept_speed(curve, workers, len(layout))
