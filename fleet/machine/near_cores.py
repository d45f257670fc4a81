"""The cores near a device: those of its NUMA domain, which reach it without a detour through another."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Cores = tuple[int, ...]

PCI = Path("/sys/bus/pci/devices")


def cores_near(properties: Any, folder: Path = PCI) -> Cores:
    """The cores that the system says are near a device; none where it does not say.

    Args:
        properties: what torch says of the device.
        folder: where the system describes its PCI devices.
    """
    with suppress(OSError, ValueError):
        return _listed((folder / pci_address(properties) / "local_cpulist").read_text())
    return ()


def pci_address(properties: Any) -> str:
    """A device's PCI address as the system writes it; "" where torch does not say."""
    bus = getattr(properties, "pci_bus_id", None)
    if isinstance(bus, int):
        domain, place = getattr(properties, "pci_domain_id", 0), getattr(properties, "pci_device_id", 0)
        return f"{domain:04x}:{bus:02x}:{place:02x}.0"
    return str(bus or "").lower()


def settle_cores(
    everyone: Callable[[dict[str, Any]], Sequence[Mapping[str, Any]]],
    rank: int,
    cores: Sequence[Sequence[int]],
    near: Sequence[Sequence[int]],
    nodes: Sequence[int],
) -> list[Cores]:
    """The cores of each rank, once trainers have those near their devices; all stay where they are if one cannot move.

    Args:
        everyone: gives what all ranks give it, in their order; all call it at once.
        rank: this one.
        cores, near, nodes: as for `near_first`.
    """
    before = [tuple(each) for each in cores]
    after = near_first(before, [tuple(each) for each in near], nodes)
    if after == before:
        return before
    moved = after[rank] == before[rank] or bind(after[rank])
    if all(answer["moved"] for answer in everyone({"moved": moved})):
        return after
    bind(before[rank])
    return before


def near_first(cores: Sequence[Cores], near: Sequence[Cores], nodes: Sequence[int]) -> list[Cores]:
    """The cores that each rank should have, so that trainers compute near their devices.

    Ranks of a node that have cores of their own exchange them, as many for as many. Where ranks share cores, a trainer
    keeps those near its device, unless these are less than its part.

    Args:
        cores: each rank may use these now.
        near: what is near its device; ranks without one have none.
        nodes: the node of each rank.
    """
    given = list(cores)
    if not any(near):
        return given
    of_nodes: dict[int, list[int]] = defaultdict(list)
    for rank, node in enumerate(nodes):
        of_nodes[node].append(rank)
    for ranks in of_nodes.values():
        held = [core for rank in ranks for core in cores[rank]]
        if len(held) == len(set(held)):
            for size in {len(cores[rank]) for rank in ranks}:
                _exchange(given, near, [rank for rank in ranks if len(cores[rank]) == size])
        else:
            for rank in ranks:
                close = tuple(core for core in cores[rank] if core in near[rank])
                if close and len(close) * len(ranks) >= len(cores[rank]):
                    given[rank] = close
    return given


def _exchange(given: list[Cores], near: Sequence[Cores], ranks: Sequence[int]) -> None:
    """Hand the ranks' sets out again: the one with most cores near a device first, a rank's own before others."""
    sets = {rank: given[rank] for rank in ranks}
    wishes = [
        (-len(set(near[rank]) & set(sets[whose])), rank != whose, rank, whose) for rank in ranks for whose in ranks
    ]
    settled: set[int] = set()
    for _, _, rank, whose in sorted(wishes):
        if rank not in settled and whose in sets:
            given[rank] = sets.pop(whose)
            settled.add(rank)


def bind(cores: Cores) -> bool:
    """Let all threads of this process compute on these cores alone; whether the system lets them."""
    try:
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), cores)
    except OSError:
        return False
    return tuple(sorted(os.sched_getaffinity(0))) == tuple(sorted(cores))


def _listed(text: str) -> Cores:
    """The numbers of a list as the system writes them: 0-3,8."""
    parts = [part.partition("-") for part in text.strip().split(",") if part]
    return tuple(core for first, _, last in parts for core in range(int(first), int(last or first) + 1))
