"""Devices for configurations, with as few moves as it takes."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from fleet.scheduling.model.state import State
from fleet.scheduling.placing.configurations import Configuration, kept, placed, take_configuration

_NODES = 64  # that are looked at to make room for a job, those with most free devices


class _Room(NamedTuple):
    """What it takes to make room on a node: seconds of restarts, and the jobs that go elsewhere."""

    seconds: float
    moves: int
    node: int
    jobs: tuple[str, ...]


def placed_with_least_moves(
    chosen: Mapping[str, Configuration], state: State, given: Mapping[str, tuple[int, ...]] = MappingProxyType({})
) -> dict[str, tuple[int, ...]]:
    """Devices for the configurations that jobs shall have.

    A job that has its configuration keeps its devices, unless a larger one finds no room: then the jobs go elsewhere
    whose restarts take least, on the nodes where that is least. Where this finds no room, `placed` places all anew.

    Args:
        chosen: job -> its configuration.
        state: the jobs and devices.
        given: job -> the devices that it has in any case.
    """
    packing = _Packing(chosen, state, given)
    return packing.found if packing.place() else placed(chosen, state, given)


class _Packing:
    """Jobs on their devices, and those that still need some, the largest first."""

    def __init__(self, chosen: Mapping[str, Configuration], state: State, given: Mapping[str, tuple[int, ...]]) -> None:
        self._chosen, self._jobs, self._cluster = chosen, state.by_name, state.cluster
        keeping, self._free = kept(chosen, state, given)
        self.found = {**given, **keeping}
        self._on: dict[int, list[str]] = {}  # node -> jobs that keep devices on it, and have none elsewhere
        for job, devices in keeping.items():
            if chosen[job].nodes == 1:
                self._on.setdefault(self._cluster.node_of(devices[0]), []).append(job)
        self._waiting = [(-chosen[job].devices, job) for job in chosen if job not in self.found]
        heapq.heapify(self._waiting)

    def place(self) -> bool:
        """Give all of them devices; False: one finds no room. A job moves smaller ones alone, so this ends."""
        while self._waiting:
            _, job = heapq.heappop(self._waiting)
            devices = self._taken(self._chosen[job])
            if devices is None:
                return False
            self.found[job] = devices
        return True

    def _taken(self, configuration: Configuration) -> tuple[int, ...] | None:
        devices = take_configuration(configuration, self._free)
        if devices is not None:
            return devices
        for job in self._in_the_way(configuration):
            self._leave(job)
        return take_configuration(configuration, self._free)

    def _leave(self, job: str) -> None:
        devices = self.found.pop(job)
        self._on[self._cluster.node_of(devices[0])].remove(job)
        self._free.give(devices)
        heapq.heappush(self._waiting, (-self._chosen[job].devices, job))

    def _in_the_way(self, configuration: Configuration) -> list[str]:
        """The jobs that go, for a configuration to find room; none: it finds none."""
        kinds = self._cluster.kinds or ("",) * self._cluster.nodes
        nodes = (node for node, kind in enumerate(kinds) if kind == configuration.kind)
        emptiest = heapq.nsmallest(max(_NODES, configuration.nodes), nodes, key=lambda node: -self._free.on(node))
        rooms = sorted(filter(None, (self._room(node, configuration) for node in emptiest)))
        if len(rooms) < configuration.nodes:
            return []
        return [job for room in rooms[: configuration.nodes] for job in room.jobs]

    def _room(self, node: int, configuration: Configuration) -> _Room | None:
        """Of a configuration on a node, or of its part of several; None: there is none, whoever goes."""
        wanted = configuration.devices // configuration.nodes
        smaller = (job for job in self._on.get(node, ()) if self._chosen[job].devices < configuration.devices)
        return self._least(node, smaller, wanted - self._free.on(node))

    def _least(self, node: int, jobs: Iterable[str], needed: int) -> _Room | None:
        """The jobs with so many devices, or more, whose restarts take least."""
        needed = max(0, needed)
        least = {0: _Room(0.0, 0, node, ())}  # devices, no more than are needed -> the jobs that have them
        for job in jobs:
            for devices, room in list(least.items()):
                more = min(devices + self._chosen[job].devices, needed)
                with_it = _Room(room.seconds + self._jobs[job].restart, room.moves + 1, node, (*room.jobs, job))
                least[more] = min(least.get(more, with_it), with_it)
        return least.get(needed)
