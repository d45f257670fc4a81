"""Placing counts of devices so that those who can stay do."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.scheduling.model.free_devices import FreeDevices
from fleet.scheduling.model.state import State


def staying(counts: Mapping[str, int], state: State) -> tuple[dict[str, tuple[int, ...]], FreeDevices]:
    """The running jobs whose number is right, on the devices that they have; and the devices free for the others."""
    free = state.free_devices()
    placed: dict[str, tuple[int, ...]] = {}
    for name, devices in state.running.items():
        if counts.get(name) == len(devices) and state.unavailable.isdisjoint(devices):
            placed[name] = devices
        else:
            free.give(device for device in devices if device not in state.unavailable)
    return placed, free


def placed_or_staying(counts: Mapping[str, int], state: State) -> dict[str, tuple[int, ...]]:
    """Devices for each job: those that it has, where their number is right; for the others, the largest job first.

    A job that fits on a node is not spread over several: it gets what one node has, or nothing.

    Args:
        counts: job -> devices, one or more; together no more than are available.
    """
    placed, free = staying(counts, state)
    coming = [state.by_name[name] for name in counts if name not in placed]
    for job in sorted(coming, key=lambda job: (-counts[job.name], job.arrival, job.name)):
        count = counts[job.name]
        if count <= max(state.cluster.devices_per_node):
            count = min(count, free.largest())
        taken = free.take(count) if count else None
        if taken is not None:
            placed[job.name] = taken
    return placed
