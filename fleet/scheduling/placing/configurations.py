"""Configurations: a kind of device, and how many of it on how many nodes, none of them shared needlessly (Sia, 3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import NamedTuple

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.free_devices import FreeDevices
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.state import State

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
