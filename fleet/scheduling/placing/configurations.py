"""Configurations: a kind of device, and how many of it on how many nodes, none of them shared needlessly (Sia, 3.3)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import NamedTuple

from fleet.scheduling.model.cluster import Cluster, FreeDevices
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State

MOST_DEVICES = 64


class Configuration(NamedTuple):
    """A number of devices of a kind: on one node, or all of several nodes."""

    kind: str
    nodes: int
    devices: int


@cache
def configurations_of(cluster: Cluster) -> tuple[Configuration, ...]:
    """1, 2, 4, ... devices of a node, the whole node, then 2, 3, ... whole nodes of each kind."""
    found: list[Configuration] = []
    for kind, total in cluster.counts().items():
        each = cluster.per_node(kind)
        inside = [1 << power for power in range(each.bit_length()) if 1 << power < each]
        found += [Configuration(kind, 1, devices) for devices in (*inside, each)]
        for nodes in range(2, min(total, MOST_DEVICES) // each + 1):
            found.append(Configuration(kind, nodes, nodes * each))
    return tuple(found)


@lru_cache(maxsize=8192)
def configuration_of(devices: tuple[int, ...], cluster: Cluster) -> Configuration:
    """The configuration that these devices are."""
    nodes = {cluster.node_of(device) for device in devices}
    return Configuration(cluster.kind_of(devices[0]), len(nodes), len(devices))


def may_have(job: JobState, kind: str) -> bool:
    """Whether a job may train on a kind: one that keeps its bits on one kind alone stays there."""
    return job.mixed_kinds or job.kind in ("", kind)


def placed(
    chosen: Mapping[str, Configuration], state: State, given: Mapping[str, tuple[int, ...]] = MappingProxyType({})
) -> dict[str, tuple[int, ...]]:
    """Devices for the configurations that jobs shall have.

    A job that has its configuration keeps its devices, unless a kind's devices are so scattered that another cannot
    have its own: then all of that kind are placed anew, the largest first. A job whose configuration cannot be had, as
    devices failed, is left out.

    Args:
        chosen: job -> its configuration.
        state: the jobs and devices.
        given: job -> the devices that it has in any case.
    """
    keeping, free = kept(chosen, state, given)
    found = {**given, **keeping}
    by_kind: dict[str, list[str]] = {}
    for job, configuration in chosen.items():
        if job not in given:
            by_kind.setdefault(configuration.kind, []).append(job)
    for jobs in by_kind.values():
        new = _take(((job, chosen[job]) for job in jobs if job not in keeping), free)
        if new is None:
            for job in jobs:
                free.give(found.pop(job, ()))
            new = _take(((job, chosen[job]) for job in jobs), free, skip=True)
        found |= new or {}
    return found


def kept(
    chosen: Mapping[str, Configuration], state: State, given: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, tuple[int, ...]], FreeDevices]:
    """The devices of the jobs that have their configuration, and what is free beside these and those that are given."""
    sure = set(state.unavailable).union(*given.values())
    keeping = {
        job: devices
        for job, devices in state.staying.items()
        if job in chosen
        and job not in given
        and configuration_of(devices, state.cluster) == chosen[job]
        and sure.isdisjoint(devices)
    }
    free = FreeDevices(state.cluster)
    free.remove(sure.union(*keeping.values()))
    return keeping, free


def _take(
    wanted: Iterable[tuple[str, Configuration]], free: FreeDevices, skip: bool = False
) -> dict[str, tuple[int, ...]] | None:
    """Take devices for these, the largest first; None, and nothing taken, where one cannot have its configuration."""
    taken: dict[str, tuple[int, ...]] = {}
    for job, configuration in sorted(wanted, key=lambda each: -each[1].devices):
        devices = take_configuration(configuration, free)
        if devices is not None:
            taken[job] = devices
        elif not skip:
            for given in taken.values():
                free.give(given)
            return None
    return taken


def take_configuration(configuration: Configuration, free: FreeDevices) -> tuple[int, ...] | None:
    """Devices of that configuration; None, and nothing taken, if there are none."""
    if configuration.nodes == 1 and free.largest(configuration.kind) < configuration.devices:
        return None
    devices = free.take(configuration.devices, configuration.kind)
    if devices is not None and free.spread(devices) > configuration.nodes:
        free.give(devices)
        return None
    return devices


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
