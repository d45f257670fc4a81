"""A cluster as it is written on the command line: `16x8`, `8x4:v100,4x4:p100`, `4,4,2`."""

from __future__ import annotations

import re

from fleet.scheduling.model.cluster import Cluster

_MOST = 1_000_000
"""Devices beyond which a shape is taken for a slip of the pen."""
_PART = re.compile(r"(?:(\d+)\s*[xX*]\s*)?(\d+)(?:\s*:\s*([A-Za-z][\w.-]*))?")
_WAYS = "NODESxDEVICES, such as 16x8; with kinds 8x4:v100,4x4:p100; or the devices of each node, such as 4,4,2"


def read_cluster(text: str) -> Cluster:
    """The cluster of that shape. Kinds are taken in small letters.

    Raises:
        ValueError: it is no shape, a node has no device, there are too many, or only some nodes have a kind.
    """
    parts = [_part(text, part.strip()) for part in text.split(",")]
    if len({bool(kind) for _, _, kind in parts}) == 2:
        bare = next(f"{nodes}x{devices}" for nodes, devices, kind in parts if not kind)
        raise ValueError(f"cluster {text}: {bare} names no kind of device, but others do; name one for each, or none")
    size = sum(nodes * devices for nodes, devices, _ in parts)
    if size > _MOST:
        raise ValueError(f"cluster {text}: these are {size:,} devices; at most {_MOST:,} can be simulated")
    shape = tuple(devices for nodes, devices, _ in parts for _ in range(nodes))
    kinds = tuple(kind for nodes, _, kind in parts for _ in range(nodes))
    return Cluster(shape, kinds if any(kinds) else ())


def shape_of(cluster: Cluster) -> str:
    """The shape, as `read_cluster` reads it."""
    kinds = cluster.kinds or ("",) * cluster.nodes
    runs: list[tuple[int, int, str]] = []
    for devices, kind in zip(cluster.devices_per_node, kinds):
        if runs and runs[-1][1:] == (devices, kind):
            runs[-1] = (runs[-1][0] + 1, devices, kind)
        else:
            runs.append((1, devices, kind))
    return ",".join(f"{nodes}x{devices}" + (f":{kind}" if kind else "") for nodes, devices, kind in runs)


def _part(text: str, part: str) -> tuple[int, int, str]:
    found = _PART.fullmatch(part)
    if found is None:
        raise ValueError(f"cluster {text}: {part!r} is no shape of nodes; write {_WAYS}")
    nodes, devices = int(found[1] or 1), int(found[2])
    if nodes < 1 or devices < 1:
        raise ValueError(f"cluster {text}: {part} has no device; a cluster has one node or more, each with a device")
    if nodes > _MOST or devices > _MOST:
        raise ValueError(f"cluster {text}: {part} is more than can be simulated: at most {_MOST:,} devices")
    return nodes, devices, (found[3] or "").lower()
