"""A cluster whose trainers share accelerators, as one of accelerators, each of which one job has for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.state import State


class Accelerators:
    """Shows a policy accelerators in place of trainers, and turns its plan back.

    Args:
        state: its cluster says who shares.

    Attributes:
        state: the same by accelerators. One that two jobs share is shown as the first one's; one of which a trainer is
            left still works.
    """

    def __init__(self, state: State) -> None:
        self._trainers, cluster = state, state.cluster
        self._devices = sorted(cluster.sharing, key=lambda devices: (cluster.node_of(devices[0]), devices))
        self._of = {device: number for number, devices in enumerate(self._devices) for device in devices}
        nodes = [cluster.node_of(devices[0]) for devices in self._devices]
        counts = tuple(nodes.count(node) for node in range(cluster.nodes))
        lost = {number for number in range(len(self._devices)) if not self._working(number)}
        self._running = self._held()
        self.state = replace(
            state, cluster=Cluster(counts, cluster.kinds), running=self._running, formed={},
            unavailable=frozenset(lost), books=None,
        )  # fmt: skip

    def plan(self, found: Plan, executors: Callable[[str, tuple[int, ...]], int]) -> Plan:
        """The plan by trainers.

        Args:
            executors: job, its accelerators -> trainers that it has on each; who keeps his accelerators keeps these.
        """
        running, placed = self._trainers.running, dict[str, tuple[int, ...]]()
        for job, numbers in found.allocation.items():
            if self._running.get(job) != numbers or not self._is_whole(job):
                placed[job] = self._taken(numbers, executors(job, numbers))
        uprooted = [job for job in running if job not in self._running and job not in placed]
        hurt = [job for job in self._running if not self._is_whole(job) and job not in (*placed, *found.stopped)]
        placed |= {job: self._taken(self._running[job], executors(job, self._running[job])) for job in hurt}
        return replace(found, allocation=placed, stopped=(*found.stopped, *uprooted))

    def _held(self) -> Mapping[str, tuple[int, ...]]:
        taken: set[int] = set()
        held = {}
        for job, devices in self._trainers.running.items():
            numbers = tuple(sorted({self._of[device] for device in devices}))
            if taken.isdisjoint(numbers):
                held[job] = numbers
                taken.update(numbers)
        return held

    def _is_whole(self, job: str) -> bool:
        """Whether a running job has lost none of its trainers."""
        return self._trainers.unavailable.isdisjoint(self._trainers.running.get(job, ()))

    def _working(self, number: int) -> tuple[int, ...]:
        return tuple(device for device in self._devices[number] if device not in self._trainers.unavailable)

    def _taken(self, numbers: tuple[int, ...], each: int) -> tuple[int, ...]:
        return tuple(sorted(device for number in numbers for device in self._working(number)[:each]))
