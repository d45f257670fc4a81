"""A split of virtual workers over devices, as a configuration says it."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.scheduling.easyscale.intra_job import WorkerConfiguration


def workers_of(
    configuration: WorkerConfiguration, devices: Sequence[tuple[int, int]], workers: int
) -> dict[int, range]:
    """Device -> its virtual workers: each worker on exactly one, no device with more than its executors' threads.

    Args:
        devices: (device, index of its kind), as many of each kind as the configuration has.
        workers: maxP, numbered from 0.

    Raises:
        ValueError: other devices than the configuration's.
    """
    counted = tuple(sum(kind == i for _, kind in devices) for i in range(len(configuration.nums)))
    if counted != configuration.nums:
        raise ValueError(f"there are {counted} devices of the kinds; the configuration is for {configuration.nums}")
    placed, begin = {}, 0
    useful = [(device, configuration.executors[kind] * configuration.threads[kind]) for device, kind in devices]
    waiting = sum(room > 0 for _, room in useful)
    for device, room in useful:
        waiting -= room > 0
        end = begin + min(room, max(1, workers - begin - waiting), workers - begin)
        placed[device] = range(begin, end)
        begin = end
    return placed
