"""Where ranks and their launchers listen for other machines, node by node."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any

import psutil

from fleet.machine.launch.loopback import listening

_UNKNOWN = "a place that this system does not tell"


def listeners_here() -> dict[str, Any]:
    """What `listeners_by_node` takes of each rank.

    Its node, the addresses beyond the loopback interface where it and its launcher listen, and the node's interfaces.
    """
    places: set[str] = set()
    for process in (os.getpid(), os.getppid()):
        try:
            places |= {place.rpartition(":")[0] for place in listening(process)}
        except (OSError, AttributeError):
            places.add(_UNKNOWN)
    kinds = (socket.AF_INET, socket.AF_INET6)
    interfaces = [
        f"{name} {each.address}"
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if name not in ("lo", "lo0") and each.family in kinds
    ]
    return {"node": socket.gethostname(), "places": sorted(places), "interfaces": ", ".join(interfaces)}


def listeners_by_node(told: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each node whose ranks or launcher others can reach."""
    nodes: dict[str, tuple[set[str], str]] = {}
    for rank in told:
        nodes.setdefault(rank["node"], (set(), rank["interfaces"]))[0].update(rank["places"])
    return [
        f"{node}: ranks and launcher listen on {', '.join(sorted(places))}; its interfaces: {interfaces}"
        for node, (places, interfaces) in nodes.items()
        if places
    ]
