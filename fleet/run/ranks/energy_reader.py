"""Reads a host's counters of energy when rank 0 asks, in a thread that nobody waits for: a driver may be stuck."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from fleet.coordination.protocol import EnergyRead
from fleet.machine.cluster_map import ClusterMap
from fleet.run.ranks.guarded_thread import GuardedThread
from fleet.spec.resources import Energy

if TYPE_CHECKING:
    from fleet.machine.energy import Meter


class EnergyReader:
    """Looks for the counters at once, and answers each order with what they have counted since the last one.

    Args:
        rank, host: this process has them.
        find: gives the host's counters.
        tell: sends an answer to rank 0.
    """

    def __init__(self, rank: int, host: str, find: Callable[[], Meter], tell: Callable[[EnergyRead], object]) -> None:
        self._rank, self._host, self._find, self._tell = rank, host, find, tell
        self._orders: SimpleQueue[bool] = SimpleQueue()
        GuardedThread(self._serve, "energy")

    def ask(self) -> None:
        """Have the counters read; returns at once."""
        self._orders.put(True)

    def end(self) -> None:
        """Read no more."""
        self._orders.put(False)

    def _serve(self) -> None:
        meter = self._find()
        while self._orders.get():
            read = meter.read()
            devices, joules = tuple(each for each, _ in read.joules), tuple(each for _, each in read.joules)
            self._tell(EnergyRead(self._rank, self._host, read.seconds, devices, joules, meter.sources, read.gone))


def meter_of(cluster: ClusterMap, node: int, asked: Energy) -> Meter:
    """The counters of a node's host; none if nobody wants them read, or they cannot be.

    It runs on one rank of a node, which alone loads what reads them.
    """
    from fleet.machine.energy import Meter, find_counters

    if not asked.read:
        return Meter(())
    here = [place for place in cluster.trainers if place.node == node]
    accelerators: dict[str, tuple[int, ...]] = {}
    for place in here:
        if place.pci and place.device is not None:
            accelerators[place.pci] = (*accelerators.get(place.pci, ()), place.device)
    devices = tuple(place.device for place in here if place.device is not None)
    try:
        return Meter(find_counters(devices, accelerators, Path(asked.powercap), Path(asked.hwmon)))
    except Exception:  # whatever a broken driver does, the run goes on without its figures
        return Meter(())
